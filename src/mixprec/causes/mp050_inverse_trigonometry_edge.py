"""MP050: acos, asin or atanh receives a value that rounding has pushed to 1 or beyond."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP050",
    name="inverse-trigonometry-edge",
    title="acos, asin or atanh receives a value that rounding has pushed to 1 or beyond.",
    symptom="The result or its gradient is NaN or infinite.",
    evidence="The magnitude of the input is at least 1 in low precision and below 1 in FP32.",
    fix="Clamp to a little less than 1, by an amount that the dtype can represent, or compute in FP32.",
    where=(Where.LINT, Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://github.com/pytorch/pytorch/issues/8069",
    ),
    related=("MP045", "MP067"),
)
