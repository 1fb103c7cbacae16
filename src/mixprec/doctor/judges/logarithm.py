"""MP047: the logarithm of a number that is 0, mostly because FP16 rounded it to 0."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import confidence_of_fault, culprit, fp32_fails
from mixprec.doctor.judges._say import say
from mixprec.doctor.judges.slope_at_zero import trapped_by_where
from mixprec.records import Evidence, Verdict

LOGARITHMS = frozenset({"log", "log2", "log10", "log1p", "log_", "logit", "xlogy", "special_xlogy"})


def judge(examination: Examination) -> Verdict | None:
    """The first op at fault is a logarithm with zeros among its operands."""
    fault = culprit(examination)
    if fault is None or fault.packet not in LOGARITHMS or fault.backward or not fault.op.inputs:
        return None
    given = fault.op.inputs[-1] if "xlogy" in fault.packet else fault.op.inputs[0]
    if not given.zeros and fault.packet not in ("log1p", "logit"):
        return None
    if fp32_fails(examination) is not False and trapped_by_where(examination) is not None:
        return None  # where() discards it, and it is the slope that breaks
    confidence, ruled_out = confidence_of_fault(examination)
    return say(
        "MP047",
        f"The logarithm of 0 is taken: {given.zeros} of {given.numel} operands are 0 in {given.dtype}.",
        fault.op.location,
        evidence=[
            *fault.evidence(),
            Evidence("operands that are 0", given.zeros, f"of {given.numel}", arm=fault.arm.name),
        ],
        confidence=confidence,
        ruled_out=ruled_out,
    )
