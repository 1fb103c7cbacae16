"""MP130: training diverges in FP32 too, and does not with a smaller learning rate."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination, OptimizerRecord
from mixprec.doctor.judges._reading import courses, losses, observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict

GROWTH = 1000.0
"""Times the first loss from which on a training has diverged."""
NEXT_TO_ZERO = 1e-2


def judge(examination: Examination) -> Verdict | None:
    """The observing arm and the FP32 control diverge; of arms with smaller learning rates, one may not."""
    arm = observed(examination)
    if arm is None or arm.crash is not None:
        return None
    control = examination.arm("fp32")
    for optimizer in arm.optimizers:
        if optimizer.rank or not diverges(arm, optimizer.optimizer):
            continue
        if control is not None and not diverges(control, optimizer.optimizer):
            continue
        slowed = [one for one in examination.arms if one.changes("learning_rate") is not None]
        if control is None and not slowed:
            continue
        slower = next((one for one in slowed if not diverges(one, optimizer.optimizer)), None)
        return _say(examination, arm, optimizer, slower, control)
    return None


def diverges(arm: Arm, optimizer: int) -> bool:
    """Whether the loss ends a thousand times above its start, or stops being finite after growing.

    A loss that starts next to 0 has to grow to something, and one that falls below 0 grows nowhere.
    """
    for steps in courses(arm):
        if steps[0].optimizer != optimizer or steps[0].rank:
            continue
        finite = losses(arm, optimizer)
        if len(finite) < 2:
            return False
        first = max(abs(finite[0]), NEXT_TO_ZERO)
        tail = [step.loss for step in steps[-max(2, len(steps) // 10) :] if step.loss is not None]
        broken = bool(tail) and not any(map(math.isfinite, tail))
        grown = max(abs(loss) for loss in finite) / first
        stays = bool(tail) and all(loss > GROWTH * first for loss in tail)
        return stays or (broken and grown > 10.0) or _weights_explode(steps)
    return False


def _weights_explode(steps: tuple[object, ...]) -> bool:
    sizes = [getattr(step, "weight_amax", None) for step in steps]
    known = [size for size in sizes if size is not None and size > 0]
    return len(known) > 1 and max(known) > 1e4 * known[0]


def _say(
    examination: Examination, arm: Arm, optimizer: OptimizerRecord, slower: Arm | None, control: Arm | None
) -> Verdict:
    number = optimizer.optimizer
    evidence = [
        Evidence("learning rate", optimizer.lr, arm=arm.name),
        Evidence("first loss", losses(arm, number)[0], arm=arm.name),
        Evidence("largest finite loss", max(losses(arm, number)), arm=arm.name),
    ]
    if slower is not None and losses(slower, number):
        what = f"last loss with the learning rate times {slower.changes('learning_rate')}"
        evidence.append(Evidence(what, losses(slower, number)[-1], arm=slower.name))
    return say(
        "MP130",
        "Training diverges in FP32 as well: the learning rate is too high, or the gradients explode.",
        optimizer.site,
        evidence=evidence,
        confidence=Confidence.CONFIRMED if slower is not None and control is not None else Confidence.CONSISTENT,
        ruled_out=[Evidence("precision: the FP32 control", "diverges as well", arm="fp32")]
        if control is not None
        else (),
    )
