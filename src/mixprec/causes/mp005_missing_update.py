"""MP005: scaler.update() is never called after scaler.step()."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP005",
    name="missing-update",
    title="scaler.update() is never called after scaler.step().",
    symptom=(
        'PyTorch raises "step() has already been called since the last update()" in the second iteration; where the '
        "step is made by hand, the scale just stays where it is."
    ),
    evidence="The scale and its growth counter are the same in every iteration, although steps are made.",
    fix="Call scaler.update() once at the end of every iteration that stepped.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP003", "MP142"),
)
