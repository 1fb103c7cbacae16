"""MP042: a mask constant that is added or selected becomes minus infinity in FP16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP042",
    name="mask-constant-overflows",
    title="A mask constant that is added or selected becomes minus infinity in FP16.",
    symptom="Nothing is raised; a row that is masked completely turns into NaN.",
    evidence=(
        "An addition or where() with -1e9 or torch.finfo(torch.float32).min yields minus infinity at the masked places."
    ),
    fix="Use torch.finfo(scores.dtype).min, taken from the tensor that is masked.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://github.com/huggingface/transformers/issues/9295",
    ),
    related=("MP041", "MP043", "MP044"),
)
