"""MP122: the logits are converted to FP32 in full."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP122",
    name="fp32-logits",
    title="The logits are converted to FP32 in full.",
    symptom="The peak of memory is at the loss.",
    evidence="The largest allocation is an FP32 tensor with the vocabulary as one dimension.",
    fix="Use a fused or chunked cross entropy.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/huggingface/trl/issues/1980",
        "https://github.com/unslothai/unsloth/issues/1186",
    ),
    related=("MP034", "MP123"),
)
