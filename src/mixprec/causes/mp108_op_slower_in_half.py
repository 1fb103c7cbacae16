"""MP108: an op is slower in half precision than in FP32 on this device."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP108",
    name="op-slower-in-half",
    title="An op is slower in half precision than in FP32 on this device.",
    symptom="Training is slower with mixed precision than without.",
    evidence=(
        "The time of the op in half precision exceeds its time in the FP32 control, as for half precision on CPUs "
        "without 16-bit instructions."
    ),
    fix="Keep that op in FP32, or train this model in FP32 on this device.",
    where=(Where.CONTROL,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/118499",
        "https://github.com/pytorch/pytorch/issues/146508",
    ),
    related=("MP100", "MP167"),
)
