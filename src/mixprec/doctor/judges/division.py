"""MP048, MP141: FP16 divides by zero or next to it where FP32 does not.

An epsilon below 3e-8 is zero in FP16; so is, or nearly, the square of a tiny number.
"""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, confidence_of_fault, culprit, fp32_fails, packet
from mixprec.doctor.judges._say import say
from mixprec.formats import find_format
from mixprec.records import Evidence, Severity, Verdict

NORMALISING = ("normalize", "cosine_similarity", "layer_norm", "group_norm", "batch_norm", "rms_norm", "instance_norm")
SQUARING = frozenset({"mul", "pow", "square", "mean", "sum", "var", "std", "sqrt", "norm", "linalg_vector_norm"})
ROOTS = ("Norm", "Sqrt", "Pow", "Rsqrt", "Var", "Std", "Cdist", "Dist")


def judge(examination: Examination) -> Verdict | None:
    """A division in 16 bits by a number that is zero or subnormal there."""
    fault = culprit(examination)
    if fault is None:
        return None
    below = fault.denominator
    if below is None or not _vanishes(fault) or fp32_fails(examination):
        return None
    code = _kind(fault)
    confidence, ruled_out = confidence_of_fault(examination)
    smallest = Evidence("smallest denominator that is not 0", below.amin, arm=fault.arm.name, step=fault.iteration)
    return say(
        code,
        _words(fault, code),
        fault.op.location,
        evidence=[
            *fault.evidence(),
            Evidence("denominators that are 0", below.zeros, f"of {below.numel}", arm=fault.arm.name),
            smallest,
        ],
        confidence=confidence,
        ruled_out=ruled_out,
        severity=Severity.ERROR,
    )


def _words(fault: Fault, code: str) -> str:
    if code == "MP141":
        return "This divides by the square or power of a tiny FP16 number, which is 0 or subnormal."
    if fault.packet in ("div", "div_", "true_divide") and not (fault.backward or _has_eps(fault)):
        return "What this divides by rounds to 0 in FP16; in FP32 it does not."
    return "An epsilon that is 0 in FP16 does not keep this division from dividing by 0."


def _vanishes(fault: Fault) -> bool:
    below = fault.denominator
    if below is None or not fault.low:
        return False
    return below.zeros > 0 or 0 < below.amin < find_format("float16").tiny


def _kind(fault: Fault) -> str:
    if fault.backward:
        return "MP141" if any(root in (fault.op.node or "") for root in ROOTS) or not _has_eps(fault) else "MP048"
    if fault.op.call in NORMALISING or _has_eps(fault):
        return "MP048"
    squares = any(packet(one.op) in SQUARING for one in fault.sources)
    return "MP141" if squares or fault.packet in ("rsqrt", "reciprocal") else "MP048"


def _has_eps(fault: Fault) -> bool:
    """Whether a number that is 0 in FP16 is written there, or is what the function that was called adds."""
    lost = find_format("float16").smallest_subnormal / 2
    return any(0 < abs(value) <= lost for value in fault.constants())
