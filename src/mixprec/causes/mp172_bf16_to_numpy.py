"""MP172: a bfloat16 tensor is handed to NumPy."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP172",
    name="bf16-to-numpy",
    title="A bfloat16 tensor is handed to NumPy.",
    symptom='PyTorch raises "Got unsupported ScalarType BFloat16".',
    evidence="numpy() is called on a bfloat16 tensor, often an output of autocast.",
    fix="Call float() before numpy().",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/issues/110285",
        "https://github.com/embeddings-benchmark/mteb/issues/1297",
    ),
    related=("MP169",),
)
