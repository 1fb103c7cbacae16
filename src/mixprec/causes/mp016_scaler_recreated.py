"""MP016: a new scaler is made in every epoch or step."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP016",
    name="scaler-recreated",
    title="A new scaler is made in every epoch or step.",
    symptom="Every epoch starts with a burst of skipped steps, since what was learnt about the scale is thrown away.",
    evidence="The scaler is another object in each epoch, and steps are skipped at every start.",
    fix="Create the scaler once, before the training loop.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
    related=("MP010", "MP017"),
)
