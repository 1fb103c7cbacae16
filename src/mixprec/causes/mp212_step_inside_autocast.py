"""MP212: the optimizer steps or clears its gradients inside the autocast region."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP212",
    name="step-inside-autocast",
    title="The optimizer steps or clears its gradients inside the autocast region.",
    symptom="The next forward pass in that region may use stale copies of the weights.",
    evidence="step() or zero_grad() stands inside the region.",
    fix="Move it out of the region.",
    where=(Where.LINT,),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.cpp",
    ),
    related=("MP083", "MP088"),
)
