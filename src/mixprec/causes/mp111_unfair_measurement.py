"""MP111: the measurement includes compilation or warm-up, or does not wait for the device."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP111",
    name="unfair-measurement",
    title="The measurement includes compilation or warm-up, or does not wait for the device.",
    symptom="Speed-ups seem to vary wildly.",
    evidence="The first steps are part of the average, or no synchronisation precedes the clock.",
    fix="Warm up, synchronise, and alternate the variants; torch.utils.benchmark does so.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/tutorials/recipes/recipes/benchmark.html",),
    related=("MP103",),
)
