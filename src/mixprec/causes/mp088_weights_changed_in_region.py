"""MP088: weights are changed in place inside an autocast region."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP088",
    name="weights-changed-in-region",
    title="Weights are changed in place inside an autocast region.",
    symptom="The forward pass goes on with the old weights.",
    evidence="The version counter of a parameter moves inside the region after its cast copy was cached.",
    fix="Leave the region before changing weights, or pass cache_enabled=False.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.cpp",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP087",),
)
