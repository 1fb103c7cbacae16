"""MP066: gradients are accumulated or reduced in bfloat16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP066",
    name="accumulation-in-bf16",
    title="Gradients are accumulated or reduced in bfloat16.",
    symptom="Quality falls with more micro-batches or more ranks.",
    evidence=(
        "The dtype of the gradients or of the reduction is bfloat16, and the error against FP32 accumulation grows "
        "with the number of terms."
    ),
    fix="Accumulate and reduce in FP32, for example with reduce_dtype=torch.float32.",
    where=(Where.LINT, Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/106395",
        "https://github.com/deepspeedai/DeepSpeed/issues/2352",
        "https://github.com/deepspeedai/DeepSpeed/issues/2768",
        "https://github.com/deepspeedai/DeepSpeed/issues/5158",
    ),
    related=("MP068", "MP093"),
)
