"""MP091: an in-place op, or one with out=, gets mixed dtypes under autocast."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP091",
    name="in-place-op-under-autocast",
    title="An in-place op, or one with out=, gets mixed dtypes under autocast.",
    symptom="PyTorch raises a dtype mismatch, since autocast leaves such ops alone.",
    evidence="The op ends with an underscore or has an out argument, and its operands have different dtypes.",
    fix="Use the out-of-place form.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP162", "MP163"),
)
