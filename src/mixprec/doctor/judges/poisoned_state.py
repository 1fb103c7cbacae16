"""MP140: an optimizer takes its first step after a restore with state that is not finite."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Event, Examination, StepRecord
from mixprec.doctor.judges._reading import courses, event_run, observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Clean gradients and clean weights before, and the step that follows `load_state_dict` makes NaN of them."""
    arm = observed(examination)
    if arm is None:
        return None
    for steps in courses(arm):
        step = next((one for one in steps if not one.state_finite), None)
        restored = None if step is None or not _clean(step) else _restored_before(arm, steps, step)
        if step is not None and restored is not None:
            return say(
                "MP140",
                "The optimizer's state that was restored holds NaN or infinity: clean gradients become NaN weights.",
                restored.site,
                evidence=(
                    Evidence("loss of that step", step.loss, arm=arm.name, step=step.iteration),
                    Evidence("gradient norm of that step", _norm(step), arm=arm.name, step=step.iteration),
                ),
                confidence=Confidence.CONFIRMED,
            )
    return None


def _clean(step: StepRecord) -> bool:
    known = (step.loss, _norm(step))
    return not step.skipped and all(value is not None and math.isfinite(value) for value in known)


def _norm(step: StepRecord) -> float | None:
    return step.grad_norm if step.grad_norm_at_step is None else step.grad_norm_at_step


def _restored_before(arm: Arm, steps: tuple[StepRecord, ...], step: StepRecord) -> Event | None:
    """The restore of that optimizer between its last sound step and this one."""
    before = max((one.iteration for one in steps if one.iteration < step.iteration), default=-1)
    return next(
        (
            event
            for event in event_run(arm, step.rank)
            if event.kind == "optimizer_restored"
            and event.optimizer == step.optimizer
            and before <= event.iteration <= step.iteration
        ),
        None,
    )
