"""MP045: the gradient of sqrt or of a norm is infinite at zero."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP045",
    name="gradient-at-zero",
    title="The gradient of sqrt or of a norm is infinite at zero.",
    symptom="The forward pass is fine and the gradients are NaN or infinite, in FP32 too.",
    evidence="The first bad op is the backward of sqrt, pow or vector_norm, and its forward input holds a zero.",
    fix="Add a small constant inside the root, or leave out the zeros before it.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#gradients-for-non-differentiable-functions",
    ),
    related=("MP046", "MP141"),
)
