"""MP062: weights are kept in 16 bits, and the product that is to make them decay leaves them as they are."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, OptimizerRecord
from mixprec.doctor.judges._reading import (
    courses,
    median,
    observed,
    optimizer_of,
    site_of_conversion,
    statement_at,
    trains_half_weights,
)
from mixprec.doctor.judges._rounding import beside_fp32, makes_up_for_rounding
from mixprec.doctor.judges._say import say
from mixprec.formats import find_format
from mixprec.records import Evidence, Verdict

LOST = 0.9
"""Share of weights that decay alone leaves bit-identical; FP32 loses none down to a product of 6e-8."""
DEFAULT = 0.01
"""What AdamW takes where the script says nothing: a decay that nobody asked for is missed by nobody."""


def judge(examination: Examination) -> Verdict | None:
    """The decay of the median step, taken alone, changes no 16-bit weight, and the script asked for a decay."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        optimizer = optimizer_of(arm, steps[0].optimizer, steps[0].rank)
        share = median(step.decay_lost_share for step in steps if not step.skipped)
        if optimizer is None or share is None or share < LOST or not trains_half_weights(optimizer):
            continue
        if _asked_for(optimizer) and not makes_up_for_rounding(optimizer):
            return _say(examination, arm, optimizer, share)
    return None


def _asked_for(optimizer: OptimizerRecord) -> bool:
    return optimizer.weight_decay != DEFAULT or "weight_decay" in statement_at(optimizer.site)


def _say(examination: Examination, arm: Arm, optimizer: OptimizerRecord, share: float) -> Verdict:
    dtype = max(optimizer.parameter_dtypes, key=lambda name: optimizer.parameter_dtypes[name])
    rate, decay = optimizer.lr or 0.0, optimizer.weight_decay or 0.0
    evidence = [
        Evidence("weights that the decay of a median step leaves bit-identical", share, "share", arm=arm.name),
        Evidence("learning rate times weight decay", rate * decay, arm=arm.name),
        Evidence(f"half of epsilon of {dtype}", find_format(dtype).eps / 2),
    ]
    control, confidence = beside_fp32(examination, lambda step: step.decay_lost_share, trains_half_weights)
    return say(
        "MP062",
        f"The weights are {dtype} and have no FP32 master copy: a weight decay of {decay:g} is rounded away.",
        site_of_conversion(arm, dtype) or optimizer.site,
        evidence=[*evidence, *control],
        confidence=confidence,
    )
