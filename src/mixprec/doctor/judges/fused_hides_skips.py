"""MP021: something counts the calls of a fused optimizer's step, which happen on skipped steps too."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._reading import observed, optimizer_of
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A fused optimizer under a scaler, a skipped step, and a step hook of the script's on this optimizer."""
    arm = observed(examination)
    for step in arm.steps if arm is not None else ():
        assert arm is not None
        optimizer = optimizer_of(arm, step.optimizer, step.rank)
        if (
            not step.skipped
            or step.scaler is None
            or optimizer is None
            or not optimizer.fused
            or not optimizer.step_hooks
        ):
            continue
        skipped = sum(s.skipped for s in arm.of(step.optimizer, step.rank))
        return say(
            "MP021",
            "A hook counts every step of a fused optimizer, also those that the scaler skipped.",
            optimizer.hook_site,
            evidence=(
                Evidence("steps that the scaler skipped", skipped, arm=arm.name),
                Evidence("step hooks that the script put on the optimizer", optimizer.step_hooks, arm=arm.name),
            ),
            confidence=Confidence.CONSISTENT,
            severity=Severity.WARNING,
        )
    return None
