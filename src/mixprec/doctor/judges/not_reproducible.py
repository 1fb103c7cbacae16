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
    """An arm that changes nothing is given the same batches, has another loss from some step on, and the run fails."""
    arm = observed(examination)
    if arm is None or failure(arm) is None:
        return None
    for again in examination.arms[1:]:
        if not again.interventions and (steps := differs(arm, again)) is not None:
            return _say(arm, again, *steps)
    return None


def differs(arm: Arm, again: Arm) -> tuple[StepRecord, StepRecord] | None:
    """The first step that had the same batch and another loss."""
    for one, other in zip(_in_order(arm), _in_order(again), strict=False):
        if one.batch != other.batch:
            return None
        if _differs(one, other):
            return one, other
    return None


def _in_order(arm: Arm) -> list[StepRecord]:
    """The finished steps of rank 0; ranks do not write in the same order twice."""
    return [step for step in arm.steps if step.finished and step.rank == 0]


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
