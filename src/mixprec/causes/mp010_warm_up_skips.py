"""MP010: the first few steps are skipped while the scaler finds its scale; this is normal."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP010",
    name="warm-up-skips",
    title="The first few steps are skipped while the scaler finds its scale; this is normal.",
    symptom="One to ten steps at the start of training are skipped.",
    evidence=(
        "The skips come one after another from the first step and then stop; the first applied step has a scale of "
        "at least 64, and the same gradients are finite in FP32."
    ),
    fix="Nothing needs to be done; a smaller init_scale saves those steps.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/9799",
    ),
    related=("MP011", "MP012", "MP016"),
)
