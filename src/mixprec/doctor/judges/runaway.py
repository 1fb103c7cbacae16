"""MP014: the loss scale grows without end because nothing can overflow."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination, StepRecord
from mixprec.doctor.judges._reading import courses, observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Location, Verdict

HIGH = 2.0**24
TINY = 1e-25
"""An unscaled gradient below this overflows at no scale that anybody uses."""


def judge(examination: Examination) -> Verdict | None:
    """A scale above 2^24 while the largest unscaled gradient is zero or next to it."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        high = [step for step in steps if step.scale is not None and step.scale > max(HIGH, _first(steps))]
        if not high or high[-1] is not steps[-1]:
            continue
        recent = [step for step in steps if step.grad_amax is not None and math.isfinite(step.grad_amax)][-10:]
        if recent and all(step.grad_amax is not None and step.grad_amax <= TINY for step in recent):
            return _say(examination, arm, high[-1], recent)
    return None


def _first(steps: tuple[StepRecord, ...]) -> float:
    return next((step.scale for step in steps if step.scale is not None), 0.0)


def _say(examination: Examination, arm: Arm, step: StepRecord, recent: list[StepRecord]) -> Verdict:
    scaler = next((s for s in arm.scalers if s.scaler == step.scaler and s.rank == step.rank), None)
    return say(
        "MP014",
        "The loss scale only grows, because the gradients are zero or too small to overflow at any scale.",
        scaler.site if scaler else Location(),
        evidence=(
            Evidence("loss scale", step.scale, arm=arm.name, step=step.iteration),
            Evidence(
                "largest unscaled gradient of the last steps", max(s.grad_amax or 0.0 for s in recent), arm=arm.name
            ),
            Evidence("growth interval", scaler.growth_interval if scaler else None, arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP014"),
    )
