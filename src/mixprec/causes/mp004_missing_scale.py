"""MP004: the loss goes to backward() without being scaled, but the scaler steps the optimizer."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP004",
    name="missing-scale",
    title="The loss goes to backward() without being scaled, but the scaler steps the optimizer.",
    symptom="Learning almost stops, because gradients that were never multiplied by the scale are divided by it.",
    evidence=(
        "The tensor given to backward() is no output of scaler.scale(); the unscaled gradient norm is about the "
        "true norm divided by the scale. PyTorch raises only when no scale() call came before."
    ),
    fix="Write scaler.scale(loss).backward().",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP003", "MP039"),
)
