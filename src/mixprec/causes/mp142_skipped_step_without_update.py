"""MP142: the script leaves out a step by hand and leaves out scaler.update() with it."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP142",
    name="skipped-step-without-update",
    title="The script leaves out a step by hand and leaves out scaler.update() with it.",
    symptom=(
        'One iteration later PyTorch raises "unscale_() has already been called on this optimizer since the last '
        'update()", at an innocent line.'
    ),
    evidence=(
        "An iteration has scale() and unscale_() but neither step() nor update(), and the gradients were cleared."
    ),
    fix="Call scaler.update() in every iteration, and leave out only the step.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/Haian-Jin/LVSM/pull/19",
    ),
    related=("MP005", "MP007"),
)
