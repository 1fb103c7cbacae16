"""MP139: one rank makes NaN, and the all-reduce spreads it to all."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP139",
    name="one-rank-is-bad",
    title="One rank makes NaN, and the all-reduce spreads it to all.",
    symptom="Every rank has NaN gradients at once.",
    evidence="Before the collective, the gradients of only one rank are not finite.",
    fix="Look at the batch and the device of that rank.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/90057",
        "https://docs.pytorch.org/docs/stable/distributed.html",
    ),
    related=("MP131", "MP161"),
)
