"""MP140: an optimizer's state is not finite, and clean gradients become NaN weights.

It came from a checkpoint, or one step broke weights and state together and the script took back the weights alone.
Weights that were left broken explain by themselves whatever comes after; that is no matter of the state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mixprec.doctor._arm import Arm, Event, Examination, StepRecord
from mixprec.doctor.judges._reading import courses, event_run, observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict

AGAIN = 3
"""Clean steps that the state breaks, after which it is no accident."""
MOST = 0.9
"""Share of the later steps that are such; another bad batch may come along."""


def judge(examination: Examination) -> Verdict | None:
    """Clean gradients and clean weights before, and a step that makes NaN of them."""
    arm = observed(examination)
    if arm is None:
        return None
    if (found := restored_bad(arm)) is not None:
        return _say_restored(arm, *found)
    for steps in courses(arm):
        broke = _broke(steps)
        again = [] if broke is None or _clean(steps[broke]) else _fails_again(steps, broke)
        if broke is not None and again:
            return _say_kept(arm, steps[broke], again)
    return None


def restored_bad(arm: Arm) -> tuple[StepRecord, Event] | None:
    """The first step with a state that is not finite, and the restore it came from; None where it came from none."""
    for steps in courses(arm):
        broke = _broke(steps)
        restored = None if broke is None or not _clean(steps[broke]) else _restored_before(arm, steps, steps[broke])
        if broke is not None and restored is not None:
            return steps[broke], restored
    return None


def _broke(steps: Sequence[StepRecord]) -> int | None:
    return next((n for n, one in enumerate(steps) if not one.state_finite), None)


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


def _fails_again(steps: Sequence[StepRecord], broke: int) -> Sequence[StepRecord]:
    """The later steps that begin with finite weights, are given clean gradients and break all they train, if most do.

    Where no tensor of the weights was left without NaN, a finite loss in the next step tells that they were put back.
    """
    later = steps[broke + 1 :]
    again = [step for step in later if _clean(step) and _all_broken(step)]
    return again if _all_broken(steps[broke]) and len(again) >= max(AGAIN, MOST * len(later)) else []


def _all_broken(step: StepRecord) -> bool:
    return not step.weights_finite and step.weight_amax is None and not step.state_finite


def _say_restored(arm: Arm, step: StepRecord, restored: Event) -> Verdict:
    return say(
        "MP140",
        "The optimizer's state that was restored holds NaN or infinity: clean gradients become NaN weights.",
        restored.site,
        evidence=_broken(arm, step),
        confidence=Confidence.CONFIRMED,
    )


def _say_kept(arm: Arm, first: StepRecord, again: Sequence[StepRecord]) -> Verdict:
    return say(
        "MP140",
        "The weights were put back after a bad step, the optimizer's state was not: it still holds NaN, and every "
        "later step makes NaN of clean gradients.",
        first.site,
        evidence=(
            Evidence("iteration that broke weights and state", first.iteration, arm=arm.name, step=first.iteration),
            Evidence("loss of that iteration", first.loss, arm=arm.name, step=first.iteration),
            Evidence("its batch was finite", first.batch_finite, arm=arm.name, step=first.iteration),
            Evidence("later steps that break the weights again", len(again), arm=arm.name),
            *_broken(arm, again[-1]),
        ),
        confidence=Confidence.CONFIRMED,
    )


def _broken(arm: Arm, step: StepRecord) -> tuple[Evidence, ...]:
    return (
        Evidence("loss of that step", step.loss, arm=arm.name, step=step.iteration),
        Evidence("gradient norm of that step", _norm(step), arm=arm.name, step=step.iteration),
    )
