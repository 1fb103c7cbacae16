"""MP143: scaler.step() runs for an optimizer none of whose parameters has a gradient."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP143",
    name="step-without-gradients",
    title="scaler.step() runs for an optimizer none of whose parameters has a gradient.",
    symptom='PyTorch raises "No inf checks were recorded for this optimizer."',
    evidence=(
        "At the step every gradient of this optimizer is None, while other optimizers have gradients, or this one "
        "had some earlier."
    ),
    fix="Step only the optimizers whose loss was part of this iteration.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/nerfstudio-project/nerfstudio/issues/1919",
    ),
    related=("MP144", "MP145"),
)
