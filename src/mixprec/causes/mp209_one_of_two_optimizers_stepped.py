"""MP209: two optimizers have gradients but only one is stepped through the scaler."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP209",
    name="one-of-two-optimizers-stepped",
    title="Two optimizers have gradients but only one is stepped through the scaler.",
    symptom="One part of the model does not train, or it is stepped on scaled gradients.",
    evidence="The loop owns two optimizers and one scaler and calls scaler.step() for one of them only.",
    fix="Call scaler.step() for every optimizer whose gradients were made, then update() once.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",),
    related=("MP003", "MP006", "MP146"),
)
