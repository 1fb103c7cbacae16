"""MP174: the first step of a fused SGD with momentum was skipped, and its momentum is memory that nobody wrote."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, OptimizerRecord
from mixprec.doctor.judges._reading import failure, observed, sound
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Such an optimizer, a skipped first step, and the unfused arm healthy or the buffers broken."""
    arm = observed(examination)
    for optimizer in arm.optimizers if arm is not None else ():
        assert arm is not None
        if optimizer.kind != "SGD" or not optimizer.fused or not optimizer.momentum:
            continue
        steps = arm.of(optimizer.optimizer, optimizer.rank)
        if steps and steps[0].skipped and steps[0].scaler is not None:
            return _say(examination, arm, optimizer)
    return None


def _say(examination: Examination, arm: Arm, optimizer: OptimizerRecord) -> Verdict:
    unfused, broken = examination.arm("unfused"), failure(arm)
    cured = broken is not None and sound(unfused)
    evidence = [
        Evidence("first step skipped", True, arm=arm.name, step=0),
        Evidence("fused SGD with momentum", optimizer.momentum, arm=arm.name),
    ]
    if broken is not None:
        evidence.append(Evidence("what went wrong", broken.how, arm=arm.name, step=broken.iteration))
    if unfused is not None:
        evidence.append(Evidence("the same unfused", "healthy" if failure(unfused) is None else "fails", arm="unfused"))
    return say(
        "MP174",
        "A fused SGD whose first step is skipped goes on with momentum that nobody has written.",
        optimizer.site,
        evidence=evidence,
        confidence=Confidence.CONFIRMED if cured else Confidence.CONSISTENT,
    )
