"""MP160: ranks make different numbers of scaler updates."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP160",
    name="ranks-update-differently",
    title="Ranks make different numbers of scaler updates.",
    symptom="The scales of the ranks drift apart, averaged gradients mix two scales, and the parameters differ.",
    evidence=(
        "The number of update() calls differs between ranks, and with it the scale, although no overflow was found."
    ),
    fix="Make the same number of updates on every rank, or broadcast the scale.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/90057",
        "https://github.com/pytorch/pytorch/issues/136009",
    ),
    related=("MP026", "MP161"),
)
