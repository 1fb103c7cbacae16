"""MP069: the script draws random numbers in 16 bits, where a uniform one has 256 or 2048 values in all."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, TracedOp
from mixprec.doctor.judges._located import packet, traced
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.formats import find_format
from mixprec.records import Evidence, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A draw in a traced iteration of the training; what initialises weights comes before the first and is none."""
    for arm, one in traced(examination, "noise"):
        if one.iteration > 0:
            return _say(examination, arm, one)
    return None


def _say(examination: Examination, arm: Arm, one: TracedOp) -> Verdict:
    made = one.op.outputs[0]
    evidence = [Evidence("numbers drawn", made.numel, made.dtype, arm=arm.name, step=one.iteration)]
    if packet(one.op).startswith(("rand", "uniform")) and "randn" not in packet(one.op):
        values = int(2 / find_format(made.dtype).eps)
        evidence.append(Evidence(f"values that a uniform number can have in {made.dtype}", values))
    return say(
        "MP069",
        f"Random numbers are drawn in {made.dtype}: they are coarse, and others than those of a run in FP32.",
        one.op.location,
        evidence=evidence,
        confidence=confidence_of_protocol(examination, "MP069"),
        severity=Severity.WARNING,
    )
