"""MP050: acos, asin or atanh at the edge of what they are defined for, where rounding has put it."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import confidence_of_fault, culprit
from mixprec.doctor.judges._say import say
from mixprec.records import Verdict

FUNCTIONS = ("acos", "asin", "atanh", "acosh", "erfinv", "logit")


def judge(examination: Examination) -> Verdict | None:
    """The first op at fault is one of them, or in the backward of one."""
    fault = culprit(examination)
    if fault is None:
        return None
    node = (fault.op.node or "").lower()
    if fault.packet.rstrip("_") not in FUNCTIONS and not any(node.startswith(name) for name in FUNCTIONS):
        return None
    confidence, ruled_out = confidence_of_fault(examination)
    return say(
        "MP050",
        "Rounding puts the operand of an inverse function at or beyond its edge, where its slope is infinite.",
        fault.op.location,
        evidence=fault.evidence(),
        confidence=confidence,
        ruled_out=ruled_out,
    )
