"""MP012, MP013: the scale falls without end, and in the end poisons clean gradients.

The scaler is innocent: a cause in the forward pass is named by another judge where it was located.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, StepRecord
from mixprec.doctor.judges._located import culprit, scaled_overflow
from mixprec.doctor.judges._reading import courses, failure, observed, skips, sound
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Verdict


def judge(examination: Examination) -> Verdict | None:
    """No step is applied any more, or one is applied at a scale that has no reciprocal."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        poisoned = next(
            (s for s in steps if s.scale is not None and s.scale <= 2.0**-126 and not s.weights_finite), None
        )
        if poisoned is not None:
            return _poisoned(arm, poisoned)
        if steps[0].scale is not None and _collapsed(steps) and not sound(examination.arm("scale-1")):
            return _collapse(examination, arm, steps)
    return None


def _collapsed(steps: tuple[StepRecord, ...]) -> bool:
    """The second half of a run that skips nearly everything, down to a scale below 1."""
    half = steps[len(steps) // 2 :]
    low = steps[-1].scale_after if steps[-1].scale_after is not None else steps[-1].scale
    return len(steps) > 12 and sum(s.skipped for s in half) >= 0.9 * len(half) and low is not None and low < 1.0


def _poisoned(arm: Arm, step: StepRecord) -> Verdict:
    return say(
        "MP013",
        "The scale has fallen so far that its reciprocal is infinite, and clean gradients become NaN.",
        step.site,
        evidence=(Evidence("loss scale", step.scale, arm=arm.name, step=step.iteration),),
        confidence=Confidence.CONFIRMED,
    )


def _collapse(examination: Examination, arm: Arm, steps: tuple[StepRecord, ...]) -> Verdict:
    fault = culprit(examination)
    at = fault.op.location if fault is not None and not scaled_overflow(fault) else Location()
    control = examination.arm("fp32")
    failed = failure(control)
    seen = skips(steps)
    evidence = [
        Evidence("skipped steps", seen.total, f"of {seen.attempts}", arm=arm.name),
        Evidence("loss scale at the end", steps[-1].scale, arm=arm.name),
    ]
    if control is not None:
        evidence.append(Evidence("FP32 control", f"fails too ({failed.how})" if failed else "healthy", arm="fp32"))
    return say(
        "MP012",
        "Every step is skipped and the scale collapses: something is infinite or NaN whatever the scale is.",
        at,
        evidence=evidence,
        confidence=Confidence.CONFIRMED if failed else Confidence.CONSISTENT,
    )
