"""MP214: unscale_() is called after the optimizer has stepped."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP214",
    name="unscale-after-step",
    title="unscale_() is called after the optimizer has stepped.",
    symptom='PyTorch raises "unscale_() is being called after step()."',
    evidence="In one iteration unscale_() follows step() on the same optimizer before update().",
    fix="Call unscale_() before the step, or remove it.",
    where=(Where.LINT,),
    raises="raises",
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",),
    related=("MP002", "MP007"),
)
