"""MP009: gradients that unscale_ found finite are not when the optimizer uses them."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination, StepRecord
from mixprec.doctor.judges._located import culprit
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A step that the scaler let through, of finite gradients before and others after."""
    arm = observed(examination)
    for step in arm.steps if arm is not None else ():
        if step.scaler is not None and not step.skipped and step.finished and _broke(step):
            assert arm is not None
            return _say(examination, arm, step)
    return None


def _broke(step: StepRecord) -> bool:
    before, used = step.grad_norm, step.grad_norm_at_step
    finite = before is not None and math.isfinite(before)
    return finite and used is not None and not math.isfinite(used)


def _say(examination: Examination, arm: Arm, step: StepRecord) -> Verdict:
    return say(
        "MP009",
        "Gradients became infinite or NaN after unscale_ had found them finite, and the scaler does not look again.",
        _place(examination, arm, step),
        evidence=(
            Evidence("norm of the gradients before unscale_", step.grad_norm, arm=arm.name, step=step.iteration),
            Evidence(
                "their norm when the optimizer used them", step.grad_norm_at_step, arm=arm.name, step=step.iteration
            ),
        ),
        confidence=Confidence.CONFIRMED,
    )


def _place(examination: Examination, arm: Arm, step: StepRecord) -> Location:
    """The op between the two, if it was traced; else a clip with a norm that is not finite, or the step."""
    fault = culprit(examination)
    if (
        fault is not None
        and fault.op.phase != "backward"
        and fault.iteration == step.iteration
        and fault.op.location.line
    ):
        return fault.op.location
    calls = [e for e in arm.events if e.iteration == step.iteration and e.optimizer in (None, step.optimizer)]
    clips = [e for e in calls if e.kind == "clip" and e.data.get("finite") is False]
    return next((e.site for e in (*clips, *calls) if e.kind in ("clip", "scaler_step")), step.site)
