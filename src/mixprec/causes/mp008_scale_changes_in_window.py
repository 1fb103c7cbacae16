"""MP008: the loss scale may change in the middle of an accumulation window."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP008",
    name="scale-changes-in-window",
    title="The loss scale may change in the middle of an accumulation window.",
    symptom=(
        "Gradients made with different scales are added up, so some micro-batches weigh twice or half as much as "
        "others."
    ),
    evidence="update() runs while gradients of an unfinished window are waiting and no step was made.",
    fix="Call update() only after the step that closes the window.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP006", "MP007"),
)
