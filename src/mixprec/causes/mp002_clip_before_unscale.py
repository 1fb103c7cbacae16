"""MP002: gradients are clipped while they still carry the loss scale."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP002",
    name="clip-before-unscale",
    title="Gradients are clipped while they still carry the loss scale.",
    symptom=(
        "Training crawls: the norm that is compared with the limit is about 65536 times too large, so every update "
        "is cut down to almost nothing."
    ),
    evidence=(
        "A clipping call runs after scale() and backward() but before unscale_(); the logged norm is about the loss "
        "scale times the true norm."
    ),
    fix="Call scaler.unscale_(optimizer) before clipping.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP009", "MP022"),
)
