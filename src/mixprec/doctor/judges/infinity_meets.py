"""MP051: the first NaN is the child of an infinity, 0 times infinity or infinity minus infinity."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, faults
from mixprec.doctor.judges._say import say
from mixprec.records import Evidence, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Both are named; the infinity is what to repair, and an error where the step's loss is not finite."""
    found = [fault for fault in faults(examination) if fault.op.phase == "forward"]
    infinite = next((fault for fault in found if fault.role == "first_inf"), None)
    child = next((fault for fault in found if fault.role == "nan_from_inf"), None)
    if infinite is None or child is None or child.iteration != infinite.iteration or "softmax" in child.packet:
        return None
    losses = [s.loss for s in infinite.arm.steps if (s.iteration, s.rank) == (infinite.iteration, infinite.traced.rank)]
    breaks = any(loss is not None and not math.isfinite(loss) for loss in losses)
    return say(
        "MP051",
        f"NaN appears in {child.packet} of line {child.op.location.line}, and is made of an infinity from line "
        f"{infinite.op.location.line}.",
        infinite.op.location,
        evidence=[*infinite.evidence(), _nan(child)],
        severity=Severity.ERROR if breaks else Severity.WARNING,
    )


def _nan(child: Fault) -> Evidence:
    return Evidence("line of the first NaN", child.op.location.line, arm=child.arm.name, step=child.iteration)
