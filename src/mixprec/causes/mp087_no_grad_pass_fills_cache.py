"""MP087: a forward pass under no_grad fills autocast's weight cache, and the training pass uses it."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP087",
    name="no-grad-pass-fills-cache",
    title="A forward pass under no_grad fills autocast's weight cache, and the training pass uses it.",
    symptom="Weights get no gradient; fixed in PyTorch at the end of 2025.",
    evidence="Gradients are None for weights that an earlier no_grad pass used in the same region.",
    fix="Use separate regions, pass cache_enabled=False, or upgrade PyTorch.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/112583",
        "https://github.com/pytorch/pytorch/issues/142234",
        "https://github.com/pytorch/pytorch/issues/165068",
    ),
    related=("MP088", "MP144"),
)
