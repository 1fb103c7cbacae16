"""MP096: a library for per-sample gradients does not follow autocast."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP096",
    name="functorch-ignores-autocast",
    title="A library for per-sample gradients does not follow autocast.",
    symptom="PyTorch raises a dtype mismatch.",
    evidence="Such a library is active, and the mismatch arises in its hooks.",
    fix="Convert the activations to FP32 there, or train without autocast.",
    where=(Where.RUN,),
    raises="raises",
    sources=(
        "https://github.com/meta-pytorch/opacus/issues/740",
        "https://github.com/meta-pytorch/opacus/issues/377",
    ),
    related=("MP082",),
)
