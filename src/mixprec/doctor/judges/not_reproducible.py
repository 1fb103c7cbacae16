"""MP132: the same run with the same seeds and batches gives other numbers."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination, StepRecord
from mixprec.doctor.judges._reading import failure, observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict

TOLERANCE = 1e-3
"""Relative difference of one loss that the order of additions does not explain."""


def judge(examination: Examination) -> Verdict | None:
    """The repeat arm is given the same batch and has another loss, from some step on, and the run fails."""
    arm, again = observed(examination), examination.arm("repeat")
    if arm is None or again is None or failure(arm) is None:
        return None
    for one, other in zip(arm.steps, again.steps, strict=False):
        if one.batch != other.batch:
            return None
        if _differs(one, other):
            return _say(arm, again, one, other)
    return None


def _differs(one: StepRecord, other: StepRecord) -> bool:
    if one.loss is None or other.loss is None:
        return False
    if not (math.isfinite(one.loss) and math.isfinite(other.loss)):
        return math.isfinite(one.loss) != math.isfinite(other.loss)
    return abs(one.loss - other.loss) > TOLERANCE * max(abs(one.loss), abs(other.loss), 1e-12)


def _say(arm: Arm, again: Arm, one: StepRecord, other: StepRecord) -> Verdict:
    return say(
        "MP132",
        "The same step with the same seed and batch gives another loss: nothing else can be concluded from controls.",
        one.site,
        evidence=(
            Evidence("loss", one.loss, arm=arm.name, step=one.iteration),
            Evidence("loss of the same step", other.loss, arm=again.name, step=other.iteration),
        ),
        confidence=Confidence.CONFIRMED,
    )
