"""MP145: optimizer holds other parameters."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP145",
    name="optimizer-holds-other-parameters",
    title=(
        "The optimizer was built before the model was copied, wrapped or converted, and holds other parameters than "
        "those that train."
    ),
    symptom=(
        'Without a scaler nothing is ever learnt; with one PyTorch raises "No inf checks were recorded for this '
        'optimizer."'
    ),
    evidence="The parameters that get gradients belong to no optimizer, and the optimizer's parameters never get any.",
    fix="Create the optimizer last.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/optim.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP143", "MP144"),
)
