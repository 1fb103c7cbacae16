"""MP131: the data is bad: NaN, infinity, wrong labels or an empty batch."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP131",
    name="bad-data",
    title="The data is bad: NaN, infinity, wrong labels or an empty batch.",
    symptom="One batch fails, whatever the precision.",
    evidence=(
        "The batch is not finite as it leaves the loader, or the same batch fails in every dtype while others pass."
    ),
    fix="Repair or drop the data.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/data.html",),
    related=("MP036", "MP052", "MP029"),
)
