"""MP132: the same step gives different results when it is repeated."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP132",
    name="not-reproducible",
    title="The same step gives different results when it is repeated.",
    symptom="Failures come and go.",
    evidence=(
        "The same batch, weights and random state give different results on a second run, always on one device or "
        "at random."
    ),
    fix="Look for races and uninitialised memory, then replace the device.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://arxiv.org/abs/2102.11245",
        "https://docs.pytorch.org/docs/stable/notes/randomness.html",
    ),
    related=("MP137",),
)
