"""MP006: scaler.update() runs between the steps of two optimizers in one iteration."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP006",
    name="update-between-optimizers",
    title="scaler.update() runs between the steps of two optimizers in one iteration.",
    symptom=(
        "The second optimizer's gradients are unscaled by another scale than the one they were made with, and what "
        "was learnt about its overflows is lost."
    ),
    evidence="One iteration has two scaler.step() calls on the same scaler with an update() between them.",
    fix="Call update() once, after the last optimizer has stepped.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP008", "MP209"),
)
