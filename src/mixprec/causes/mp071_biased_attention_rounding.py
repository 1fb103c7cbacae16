"""MP071: rounding in bfloat16 flash attention is biased in one direction."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP071",
    name="biased-attention-rounding",
    title="Rounding in bfloat16 flash attention is biased in one direction.",
    symptom="The loss rises suddenly after thousands of healthy steps.",
    evidence="The rise is gone when attention runs in FP32 with everything else unchanged.",
    fix="Run softmax and the product with the values in FP32, or use a kernel that corrects the bias.",
    where=(Where.CONTROL,),
    raises="silent",
    sources=("https://arxiv.org/abs/2510.04212",),
    related=("MP039", "MP070"),
)
