"""MP041: a mask constant such as -1e9 does not fit into FP16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP041",
    name="mask-constant-raises",
    title="A mask constant such as -1e9 does not fit into FP16.",
    symptom='masked_fill raises "value cannot be converted to type c10::Half without overflow".',
    evidence="The literal given to masked_fill is outside the FP16 range of 65504.",
    fix="Use torch.finfo(scores.dtype).min.",
    where=(Where.LINT,),
    raises="raises",
    sources=(
        "https://github.com/huggingface/transformers/issues/9295",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    ),
    related=("MP042", "MP043", "MP044"),
)
