"""MP067: a difference of nearly equal 16-bit numbers is noise; where it comes out negative, a root of it is NaN."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, confidence_of_fault, culprit, fp32_fails, traced
from mixprec.doctor.judges._reading import computes_low, observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.formats import find_format
from mixprec.records import Evidence, Verdict

UNDEFINED_BELOW_ZERO = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "pow", "sqrt_", "log_", "log1p", "rsqrt_"})


def judge(examination: Examination) -> Verdict | None:
    """The first NaN is a root or logarithm of finite 16-bit numbers, and FP32 is clean; or no NaN, and no digits."""
    fault = culprit(examination)
    if fault is None or fault.backward or fault.role != "first_nan" or not (fault.low or _from_low(examination)):
        return _silent(examination)
    if fault.packet not in UNDEFINED_BELOW_ZERO or not _finite(fault) or fp32_fails(examination):
        return _silent(examination)
    confidence, ruled_out = confidence_of_fault(examination)
    return say(
        "MP067",
        "A difference of nearly equal numbers is negative in 16 bits, where exact arithmetic has it above 0.",
        fault.op.location,
        evidence=fault.evidence(),
        confidence=confidence,
        ruled_out=ruled_out,
    )


def _from_low(examination: Examination) -> bool:
    """Whether the run computes in 16 bits and its FP32 control is sound: 16 bits then made its FP32 numbers."""
    arm = observed(examination)
    return arm is not None and computes_low(arm) and fp32_fails(examination) is False


def _silent(examination: Examination) -> Verdict | None:
    """A difference of squares that the rounding of its operands has eaten, in a training that goes on."""
    found = next(traced(examination, "cancels"), None)
    if found is None:
        return None
    arm, one = found
    at = {"arm": arm.name, "step": one.iteration}
    size = max(stats.amax for stats in one.op.inputs[:2])
    dtype = one.op.inputs[0].dtype
    return say(
        "MP067",
        f"A small difference of large {dtype} squares is what their rounding leaves of it: noise.",
        one.op.location,
        evidence=(
            Evidence("largest magnitude of what is subtracted", size, dtype, **at),  # type: ignore[arg-type] # a str and an int
            Evidence("largest magnitude of the difference", one.op.outputs[0].amax, dtype, **at),  # type: ignore[arg-type] # as above
            Evidence(f"distance of neighbours in {dtype} there", find_format(dtype).spacing(size), **at),  # type: ignore[arg-type] # as above
        ),
        confidence=confidence_of_protocol(examination, "MP067"),
    )


def _finite(fault: Fault) -> bool:
    return all(stats.finite for stats in fault.op.inputs)
