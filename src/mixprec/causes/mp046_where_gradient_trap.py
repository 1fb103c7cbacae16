"""MP046: where() hides a bad value in the forward pass but not in the backward pass."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP046",
    name="where-gradient-trap",
    title="where() hides a bad value in the forward pass but not in the backward pass.",
    symptom="Gradients are NaN although the bad places are masked out.",
    evidence="The branch that where() does not select has an infinite derivative, and 0 times infinity is NaN.",
    fix="Replace the bad inputs before the function as well as after it.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/68425",
        "https://docs.jax.dev/en/latest/faq.html#gradients-contain-nan-where-using-where",
    ),
    related=("MP045", "MP047"),
)
