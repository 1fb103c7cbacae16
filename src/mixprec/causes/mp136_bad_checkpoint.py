"""MP136: the checkpoint was loaded partly, or holds NaN."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP136",
    name="bad-checkpoint",
    title="The checkpoint was loaded partly, or holds NaN.",
    symptom="The first step is already bad.",
    evidence="Parameters are not finite, or still at their random start, at step 0.",
    fix="Load with strict=True and test the file.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",),
    related=("MP135",),
)
