"""MP028: one parameter belongs to two optimizers, so its gradient is unscaled twice."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP028",
    name="parameter-in-two-optimizers",
    title="One parameter belongs to two optimizers, so its gradient is unscaled twice.",
    symptom="That parameter hardly moves.",
    evidence=(
        "The same parameter is found in the groups of two optimizers; its gradient is divided by the square of the "
        "scale."
    ),
    fix="Give each parameter to one optimizer.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",),
    related=("MP018",),
)
