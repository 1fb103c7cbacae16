"""MP061: weights are kept in 16 bits, and most updates are smaller than half their last place."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, OptimizerRecord
from mixprec.doctor.judges._reading import (
    courses,
    low_dtype,
    median,
    observed,
    optimizer_of,
    site_of_conversion,
)
from mixprec.doctor.judges._rounding import beside_fp32, makes_up_for_rounding
from mixprec.doctor.judges._say import say
from mixprec.records import Evidence, Verdict

LOST = 0.3
"""Share of elements with a gradient that a median step leaves bit-identical; FP32 loses 0, bfloat16 at lr 1e-4 half."""


def judge(examination: Examination) -> Verdict | None:
    """The median step of an optimizer of 16-bit weights leaves a third of them as they were."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        optimizer = optimizer_of(arm, steps[0].optimizer, steps[0].rank)
        share = median(step.unchanged_share for step in steps)
        dtype = low_dtype(optimizer) if optimizer is not None else None
        if optimizer is None or dtype is None or share is None or share < LOST:
            continue
        if all(step.weights_finite for step in steps) and not makes_up_for_rounding(optimizer):
            return _say(examination, arm, optimizer, dtype, share)
    return None


def _say(examination: Examination, arm: Arm, optimizer: OptimizerRecord, dtype: str, share: float) -> Verdict:
    evidence = [
        Evidence("weights with a gradient that a median step leaves bit-identical", share, "share", arm=arm.name),
        Evidence("dtype of the weights", dtype, arm=arm.name),
        Evidence("learning rate", optimizer.lr, arm=arm.name),
    ]
    control, confidence = beside_fp32(
        examination, lambda step: step.unchanged_share, lambda held: low_dtype(held) is not None
    )
    return say(
        "MP061",
        f"The weights are {dtype} and have no FP32 master copy: most updates are rounded away.",
        site_of_conversion(arm, dtype) or optimizer.site,
        evidence=[*evidence, *control],
        confidence=confidence,
    )
