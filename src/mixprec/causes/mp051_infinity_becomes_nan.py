"""MP051: a NaN was made from an infinity that arose earlier."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP051",
    name="infinity-becomes-nan",
    title="A NaN was made from an infinity that arose earlier.",
    symptom="The op that shows NaN first is not the one to repair.",
    evidence=(
        "The first op with an infinite output comes before the first op with a NaN output, which computes 0 times "
        "infinity or infinity minus infinity."
    ),
    fix="Repair the op that made the infinity.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",),
    related=("MP030", "MP043"),
)
