"""MP049: binary cross entropy on probabilities runs under autocast."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP049",
    name="bce-under-autocast",
    title="Binary cross entropy on probabilities runs under autocast.",
    symptom="CUDA raises that it is unsafe to autocast; CPU computes it silently.",
    evidence="BCELoss or F.binary_cross_entropy is called inside an autocast region.",
    fix="Drop the sigmoid and use BCEWithLogitsLoss.",
    where=(Where.LINT,),
    raises="raises",
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://github.com/pytorch/pytorch/issues/61098",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/13871",
    ),
    related=("MP047",),
)
