"""MP206: a custom function decorates its forward with custom_fwd but its backward not with custom_bwd."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP206",
    name="custom-fwd-without-custom-bwd",
    title="A custom function decorates its forward with custom_fwd but its backward not with custom_bwd.",
    symptom="The backward runs in another autocast state than the forward.",
    evidence="Only one of the two decorators is there, or device_type is missing in the new API.",
    fix="Decorate both, with the same device_type.",
    where=(Where.LINT,),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP082", "MP202"),
)
