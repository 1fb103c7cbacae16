"""MP063: the optimizer's constants do not survive in the dtype of the parameters."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP063",
    name="optimizer-constants-round-away",
    title="The optimizer's constants do not survive in the dtype of the parameters.",
    symptom="Pure FP16 weights turn NaN or infinite after one step.",
    evidence=(
        "The parameters are half and eps is below 3e-8, which is 0 in FP16; a beta of 0.999 held as a bfloat16 "
        "tensor is 1."
    ),
    fix="Keep FP32 weights and optimizer state, or raise eps to 1e-4 or more.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://github.com/pytorch/pytorch/issues/147437",),
    related=("MP048", "MP061"),
)
