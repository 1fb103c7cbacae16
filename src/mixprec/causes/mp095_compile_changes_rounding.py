"""MP095: a compiled model rounds differently because fused kernels keep FP32 in between."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP095",
    name="compile-changes-rounding",
    title="A compiled model rounds differently because fused kernels keep FP32 in between.",
    symptom="Results drift a little from eager mode and, rarely, turn NaN.",
    evidence="Eager and compiled runs differ on the same inputs, and emulate_precision_casts removes the difference.",
    fix="Accept it, or set torch._inductor.config.emulate_precision_casts.",
    where=(Where.CONTROL,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/168126",
        "https://github.com/pytorch/pytorch/issues/173307",
        "https://github.com/pytorch/pytorch/issues/150638",
    ),
    related=("MP166",),
)
