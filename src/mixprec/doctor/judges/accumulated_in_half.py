"""MP066: gradients of many micro-batches are added up in 16 bits, and the later ones are rounded away."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, OptimizerRecord, StepRecord
from mixprec.doctor.judges._reading import courses, median, observed, optimizer_of, site_of_conversion
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Confidence, Evidence, Location, Severity, Verdict

ERROR = 0.0075
"""Relative error of the sum. To round a gradient to bfloat16 once costs 0.0017, a sum of 8 random ones 0.0035, of 64
0.009 (measured on normal numbers of any mean); what stagnates costs more.
"""


def judge(examination: Examination) -> Verdict | None:
    """The median sum of an optimizer's gradients is off by several times what rounding one gradient costs."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        error = median(step.accumulation_error for step in steps)
        optimizer = optimizer_of(arm, steps[0].optimizer, steps[0].rank)
        if optimizer is not None and error is not None and error >= ERROR:
            return _say(examination, arm, optimizer, steps, error)
    return None


def _say(
    examination: Examination, arm: Arm, optimizer: OptimizerRecord, steps: tuple[StepRecord, ...], error: float
) -> Verdict:
    dtype = max(optimizer.parameter_dtypes, key=lambda name: optimizer.parameter_dtypes[name])
    passes = max(step.micro_batches for step in steps)
    known = confidence_of_protocol(examination, "MP066")
    return say(
        "MP066",
        f"Gradients of {passes} backward passes are added up in {dtype}: much of the later ones is rounded away.",
        _backward(arm) or site_of_conversion(arm, dtype) or optimizer.site,
        evidence=(
            Evidence("error of the sum against the same sum in FP32", error, "share", arm=arm.name),
            Evidence("backward passes before a step", passes, arm=arm.name),
            Evidence("dtype of the gradients", dtype, arm=arm.name),
        ),
        confidence=Confidence.CONFIRMED if known is Confidence.CONFIRMED else Confidence.CONSISTENT,
        severity=Severity.WARNING,
    )


def _backward(arm: Arm) -> Location | None:
    return next((event.site for event in arm.events if event.kind == "backward"), None)
