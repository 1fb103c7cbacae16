"""MP121: autocast keeps a half copy of every weight while the region is open."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP121",
    name="cast-copies-of-weights",
    title="Autocast keeps a half copy of every weight while the region is open.",
    symptom="Memory rises by two bytes per parameter.",
    evidence="The bytes of cached casts equal twice the number of parameters.",
    fix="This is expected; a region per block frees them sooner.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.cpp",
        "https://github.com/pytorch/pytorch/issues/48049",
    ),
    related=("MP120", "MP173"),
)
