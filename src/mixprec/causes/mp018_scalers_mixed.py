"""MP018: one optimizer is served by two different scalers."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP018",
    name="scalers-mixed",
    title="One optimizer is served by two different scalers.",
    symptom="PyTorch raises in most combinations; in the rest gradients are divided by a foreign scale.",
    evidence="scale(), step() and update() of one iteration are called on different scaler objects.",
    fix="Use one scaler, or keep each optimizer with its own scaler throughout.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",),
    related=("MP006", "MP028"),
)
