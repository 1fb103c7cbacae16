"""MP137: memory from torch.empty is used before it was written."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP137",
    name="uninitialised-memory",
    title="Memory from torch.empty is used before it was written.",
    symptom="NaN appears at random and cannot be repeated.",
    evidence=(
        "The failure goes away, or becomes constant, when new memory is filled "
        "(torch.utils.deterministic.fill_uninitialized_memory)."
    ),
    fix="Use torch.zeros, or write before reading.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/deterministic.html",),
    related=("MP132", "MP174"),
)
