"""MP060: small gradients are flushed to zero in FP16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP060",
    name="gradient-underflow",
    title="Small gradients are flushed to zero in FP16.",
    symptom="The loss stops falling while an FP32 run goes on learning.",
    evidence=(
        "More than a few per cent of the FP16 gradients are zero or subnormal that FP32 has as normal numbers, and "
        "the share falls when the scale grows."
    ),
    fix="Use loss scaling, a larger scale, or bfloat16.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=("https://arxiv.org/abs/1710.03740",),
    related=("MP001", "MP015"),
)
