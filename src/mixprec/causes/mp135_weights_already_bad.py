"""MP135: the weights were already NaN before this step."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP135",
    name="weights-already-bad",
    title="The weights were already NaN before this step.",
    symptom="The step that fails is innocent.",
    evidence="A parameter that enters the first bad op is not finite at the start of the step.",
    fix="Go back to a checkpoint, and look at the earlier step.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://github.com/pytorch/pytorch/issues/96755",),
    related=("MP136", "MP140", "MP038"),
)
