"""MP067: a difference of nearly equal 16-bit numbers comes out negative, and a root or logarithm of it is NaN."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, confidence_of_fault, culprit, fp32_fails
from mixprec.doctor.judges._say import say
from mixprec.records import Verdict

UNDEFINED_BELOW_ZERO = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "pow", "sqrt_", "log_", "log1p", "rsqrt_"})


def judge(examination: Examination) -> Verdict | None:
    """The first NaN is a root or logarithm of finite 16-bit numbers, and FP32 is clean."""
    fault = culprit(examination)
    if fault is None or fault.backward or fault.role != "first_nan" or not fault.low:
        return None
    if fault.packet not in UNDEFINED_BELOW_ZERO or not _finite(fault) or fp32_fails(examination):
        return None
    confidence, ruled_out = confidence_of_fault(examination)
    return say(
        "MP067",
        "A difference of nearly equal numbers is negative in 16 bits, where exact arithmetic has it above 0.",
        fault.op.location,
        evidence=fault.evidence(),
        confidence=confidence,
        ruled_out=ruled_out,
    )


def _finite(fault: Fault) -> bool:
    return all(stats.finite for stats in fault.op.inputs)
