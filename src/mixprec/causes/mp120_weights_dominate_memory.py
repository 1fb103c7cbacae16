"""MP120: parameters and optimizer state take most of the memory, and autocast keeps them in FP32."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP120",
    name="weights-dominate-memory",
    title="Parameters and optimizer state take most of the memory, and autocast keeps them in FP32.",
    symptom="Memory hardly falls.",
    evidence="Activations are a small share of the peak.",
    fix="This is expected; use an 8-bit optimizer, sharding, or bfloat16 weights with Kahan summation.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/61173",
        "https://github.com/pytorch/tutorials/issues/1267",
    ),
    related=("MP121", "MP123"),
)
