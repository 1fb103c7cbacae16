"""MP029: skips belong to a few batches whose gradients are far larger than the rest, in FP32 as well."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Event, Examination, StepRecord
from mixprec.doctor.judges._reading import courses, median, observed, skips, sound
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Severity, Verdict

SPIKE = 8.0
"""Times the median gradient norm of the FP32 control from which on a batch stands out."""
RARE = 0.1
"""Share of steps up to which skips are those of single batches."""
SUSTAINED = 3
"""Skips from which on it is no accident."""


def judge(examination: Examination) -> Verdict | None:
    """Skips all over the run, not at its start or after a growth, and most of them at a spike of the FP32 control."""
    arm, control = observed(examination), examination.arm("fp32")
    if arm is None or control is None or not sound(control):
        return None
    for steps in courses(arm):
        others = skips(steps).others
        exact = {step.index: step for step in control.of(steps[0].optimizer, steps[0].rank)}
        usual = median(step.grad_norm for step in exact.values())
        if len(others) < SUSTAINED or len(others) > RARE * len(steps) or not usual:
            continue
        spikes = [step for step in others if _stands_out(step, exact.get(step.index), usual)]
        if 3 * len(spikes) >= 2 * len(others):
            return _say(arm, control, steps, spikes, [exact[step.index] for step in spikes], usual)
    return None


def _stands_out(step: StepRecord, exact: StepRecord | None, usual: float) -> bool:
    if exact is None or exact.grad_norm is None or not math.isfinite(exact.grad_norm) or exact.batch != step.batch:
        return False
    return exact.grad_norm > SPIKE * usual


def _say(
    arm: Arm,
    control: Arm,
    steps: tuple[StepRecord, ...],
    spikes: list[StepRecord],
    exact: list[StepRecord],
    usual: float,
) -> Verdict:
    largest = max(exact, key=lambda step: step.grad_norm or 0.0)
    return say(
        "MP029",
        "Single batches have gradients far above the rest, in FP32 as well, and their steps are skipped.",
        _backward(arm),
        evidence=(
            Evidence("skipped steps with such a batch", len(spikes), f"of {len(steps)}", arm=arm.name),
            Evidence("iterations of the first of them", ", ".join(str(s.iteration) for s in spikes[:5]), arm=arm.name),
            Evidence(
                "largest gradient norm of such a batch", largest.grad_norm, arm=control.name, step=largest.iteration
            ),
            Evidence("median gradient norm", usual, arm=control.name),
        ),
        confidence=Confidence.CONFIRMED,
        severity=Severity.WARNING,
    )


def _backward(arm: Arm) -> Location:
    """The line that calls backward; a batch has none."""
    found: Event | None = next((event for event in arm.events if event.kind == "backward"), None)
    return Location() if found is None else found.site
