"""MP106: the model spends its time outside matrix products."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP106",
    name="memory-bound-model",
    title="The model spends its time outside matrix products.",
    symptom="Half precision gives little speed-up.",
    evidence="Matrix products and convolutions take less than 30 per cent of the time.",
    fix="Fuse elementwise ops with torch.compile, and use channels_last for convolutions.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html",),
    related=("MP101", "MP110"),
)
