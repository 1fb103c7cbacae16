"""MP168: a float() before a matrix product does not keep it in FP32 under autocast."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP168",
    name="float-is-no-island",
    title="A float() before a matrix product does not keep it in FP32 under autocast.",
    symptom="Precision is lost where the code asks for FP32.",
    evidence="An operand is cast up inside the region, and the next op on autocast's list casts it down again.",
    fix="Put that part under autocast(enabled=False).",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/huggingface/diffusers/issues/13920",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP085", "MP053"),
)
