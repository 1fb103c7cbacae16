"""MP105: the same values are cast over and over again."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP105",
    name="too-many-casts",
    title="The same values are cast over and over again.",
    symptom="A noticeable part of the step goes into casts.",
    evidence="Casts take a large share of time or bytes, and a weight is cast more than once per step.",
    fix="Enter one region per forward pass with its cache on, and remove promotions.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.cpp",
    ),
    related=("MP085", "MP086"),
)
