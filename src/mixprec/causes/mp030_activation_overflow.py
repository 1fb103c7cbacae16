"""MP030: the output of a matrix product is larger than FP16 can hold."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP030",
    name="activation-overflow",
    title="The output of a matrix product is larger than FP16 can hold.",
    symptom="NaN appears from one layer on, only in FP16.",
    evidence=(
        "The first bad op is a linear layer or matmul with finite inputs and infinite output; in FP32 the same "
        "tensor exceeds 65504; bfloat16 runs clean."
    ),
    fix="Run that submodule in FP32 under autocast(enabled=False), clamp its output, or use bfloat16.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/huggingface/transformers/issues/9295",
        "https://github.com/huggingface/transformers/issues/4586",
        "https://github.com/huggingface/transformers/issues/10956",
        "https://github.com/huggingface/transformers/issues/12225",
        "https://github.com/huggingface/transformers/issues/14189",
    ),
    related=("MP033", "MP034", "MP037", "MP040"),
)
