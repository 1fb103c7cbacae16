"""What a step leaves of weights in 16 bits is told beside what it leaves of weights in FP32."""

from __future__ import annotations

from collections.abc import Callable

from mixprec.doctor._arm import Examination, OptimizerRecord, StepRecord
from mixprec.doctor.judges._reading import courses, median, optimizer_of
from mixprec.records import Confidence, Evidence

__all__ = ["beside_fp32", "makes_up_for_rounding"]

FEW = 0.1
"""A share of unchanged weights that FP32 training stays below."""


def makes_up_for_rounding(optimizer: OptimizerRecord) -> bool:
    """Whether the optimizer keeps, or draws, what its 16-bit weights cannot hold."""
    return optimizer.kind.lower().endswith(("kahan", "stochastic"))


def beside_fp32(
    examination: Examination,
    share_of: Callable[[StepRecord], float | None],
    holds_low: Callable[[OptimizerRecord], bool],
) -> tuple[list[Evidence], Confidence]:
    """The share in an FP32 control, or of another optimizer of the script itself, and how far that confirms it."""
    for arm in examination.arms:
        for steps in courses(arm):
            optimizer = optimizer_of(arm, steps[0].optimizer, steps[0].rank)
            share = median(map(share_of, steps))
            if optimizer is not None and share is not None and not holds_low(optimizer):
                confidence = Confidence.CONFIRMED if share < FEW else Confidence.CONSISTENT
                return [Evidence("the same in FP32", share, "share", arm=arm.name)], confidence
    return [], Confidence.CONSISTENT
