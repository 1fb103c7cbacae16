"""MP146: gradients of earlier iterations are still there when the next backward adds to them."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, StepRecord
from mixprec.doctor.judges._reading import courses, observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Most attempts of the only optimizer began with gradients of the one before."""
    arm = observed(examination)
    mine = [o for o in arm.optimizers if o.rank == 0] if arm is not None else []
    if arm is None or len(mine) != 1 or not mine[0].parameters_of_model:
        return None  # gradients of master weights are put there by hand, anew each time
    for steps in courses(arm):
        stale = [step for step in steps[1:] if step.stale_grad_norm]
        if len(steps) > 3 and len(stale) >= max(2, 0.3 * (len(steps) - 1)):
            return _say(examination, arm, stale)
    return None


def _say(examination: Examination, arm: Arm, stale: list[StepRecord]) -> Verdict:
    at = next((e.site for e in arm.events if e.kind == "backward"), stale[0].site)
    return say(
        "MP146",
        "zero_grad() is missing: gradients of earlier iterations are added to those of this one.",
        at,
        evidence=(
            Evidence("attempts that began with old gradients", len(stale), arm=arm.name),
            Evidence("norm of the old gradients", stale[0].stale_grad_norm, arm=arm.name, step=stale[0].iteration),
        ),
        confidence=confidence_of_protocol(examination, "MP146"),
    )
