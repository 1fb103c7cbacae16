"""MP174: fused SGD with momentum uses uninitialised memory after the scaler skipped its first step."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP174",
    name="fused-sgd-first-skip",
    title="Fused SGD with momentum uses uninitialised memory after the scaler skipped its first step.",
    symptom="Parameters are NaN or huge one or two steps after a harmless skip.",
    evidence=(
        "The optimizer is SGD with fused=True and momentum, its first step found an overflow, and its momentum "
        "buffers are huge although no gradient was."
    ),
    fix="Use SGD without fused=True, or mixprec.GradScaler, which does not let a skipped first step allocate them.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/optim/sgd.py",
        "https://github.com/LibreYOLO/libreyolo/pull/771",
    ),
    related=("MP021", "MP137"),
)
