"""MP037: a model that was pretrained in bfloat16 is run in FP16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP037",
    name="bf16-weights-in-fp16",
    title="A model that was pretrained in bfloat16 is run in FP16.",
    symptom="Activations overflow from the first step.",
    evidence="At step 0 activations exceed 65504 in an FP32 run.",
    fix="Stay in bfloat16, or keep the overflowing submodules in FP32.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/huggingface/transformers/issues/9295",
        "https://github.com/huggingface/transformers/issues/10956",
    ),
    related=("MP030", "MP040"),
)
