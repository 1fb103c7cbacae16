"""MP045, MP046: the gradient is infinite or NaN at a point that the forward pass does not mind, in every dtype.

A root or norm of 0 has no slope. If the value was taken away by where() in forward, its infinite slope meets a
gradient of 0 in backward, and that is NaN; so does a value that is itself infinite and that backward multiplies by.
"""

from __future__ import annotations

import math

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, culprit, faults, fp32_fails, traced
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Location, Verdict

ROOTS = ("Sqrt", "Norm", "Cdist", "Dist", "Pow", "Std", "Abs", "Rsqrt", "Atan2", "Hypot")
OTHERS = ("Log", "Div", "Reciprocal", "Exp", "Tan", "Acos", "Asin", "Where", "Mul")


def judge(examination: Examination) -> Verdict | None:
    """The first op at fault is in the backward of such an op, and FP32 fails as well."""
    fault = culprit(examination)
    if fault is None or fp32_fails(examination) is False:
        return None
    if (trapped := trapped_by_where(examination)) is not None:
        fault = trapped
    if not fault.backward:
        return None
    node = fault.op.node or ""
    masked = _masked(examination, fault)
    if masked and any(kind in node for kind in (*ROOTS, *OTHERS)):
        return _say(
            examination, fault, "MP046", "where() discards this value, but not its infinite slope: 0 times infinity."
        )
    if any(kind in node for kind in ROOTS):
        return _say(examination, fault, "MP045", "The slope of a root or norm is infinite at 0.")
    return None


def trapped_by_where(examination: Examination) -> Fault | None:
    """The op in backward that makes the first NaN of an infinity that where() discards in forward; None without one.

    The loss of that step is finite, and what the infinity became in forward was replaced by a number.
    """
    infinite = culprit(examination)
    if infinite is None or infinite.role != "first_inf" or infinite.op.phase != "forward":
        return None
    step = [fault for fault in faults(examination) if fault.of_step(infinite)]
    child = next((fault for fault in step if fault.role == "nan_from_inf"), None)
    fresh = next((fault for fault in step if fault.role == "first_nan"), None)
    if child is None or not child.backward or (fresh is not None and not fresh.backward):
        return None
    losses = [s.loss for s in infinite.arm.steps if (s.iteration, s.rank) == (infinite.iteration, infinite.traced.rank)]
    if any(loss is None or not math.isfinite(loss) for loss in losses):
        return None
    discarded = any(infinite.op.index in one.op.sources for _, one in traced(examination, "hidden"))
    discarded = discarded or _masked(examination, infinite)
    return child if discarded and infinite.op.index in child.op.sources else None


def _masked(examination: Examination, fault: Fault) -> bool:
    """Whether what the forward op made on this line was infinite and discarded, or the line says where()."""
    hidden = [one.op.location for _, one in traced(examination, "hidden") if one.op.phase == "forward"]
    near = any(_same_line(place, fault.op.location) for place in hidden)
    lint = lint_finding(examination, "MP046")
    return (
        near or "where(" in fault.traced.source or (lint is not None and _same_line(lint.location, fault.op.location))
    )


def _same_line(one: Location, other: Location) -> bool:
    return (
        one.line is not None and one.line == other.line and (one.file or "").endswith((other.file or "").split("/")[-1])
    )


def _say(examination: Examination, fault: Fault, code: str, words: str) -> Verdict:
    fails = fp32_fails(examination)
    evidence = fault.evidence()
    if fails:
        evidence.append(Evidence("FP32 control", "fails too", arm="fp32"))
    return say(
        code,
        words,
        fault.op.location,
        evidence=evidence,
        confidence=Confidence.CONFIRMED if fails else Confidence.CONSISTENT,
        ruled_out=[Evidence("precision: the FP32 control", "fails as well", arm="fp32")] if fails else (),
    )
