"""MP003: the optimizer steps by itself on gradients that still carry the loss scale."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP003",
    name="step-on-scaled-gradients",
    title="The optimizer steps by itself on gradients that still carry the loss scale.",
    symptom=(
        "The weights jump by thousands within one step and training diverges; with a scaler.update() in the loop "
        "PyTorch raises instead."
    ),
    evidence=(
        "The optimizer steps outside scaler.step() after scaler.scale(loss).backward(), so the parameters' "
        "gradients are still multiplied by the scale."
    ),
    fix="Replace optimizer.step() by scaler.step(optimizer).",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP004", "MP005"),
)
