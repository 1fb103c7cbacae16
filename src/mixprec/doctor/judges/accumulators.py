"""MP064, MP068: a sum or average is kept in 16 bits, and what is added to it is rounded away."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, TracedOp
from mixprec.doctor.judges._located import traced
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict

SCALARS = 16
"""A tensor of up to so many elements is a metric, a larger one a copy of weights."""


def judge(examination: Examination) -> Verdict | None:
    """An op that added to a 16-bit accumulator, outside backward and optimizer, what is less than its last place."""
    for arm, one in traced(examination, "stagnant"):
        if one.op.outputs:
            small = max(out.numel for out in one.op.outputs) <= SCALARS
            return _say(examination, arm, one, "MP068" if small else "MP064")
    return None


def _say(examination: Examination, arm: Arm, one: TracedOp, code: str) -> Verdict:
    into, added = one.op.outputs[0], one.op.inputs[-1]
    return say(
        code,
        f"A running sum is kept in {into.dtype}, and what is added to it is rounded away."
        if code == "MP068"
        else f"A moving average is kept in {into.dtype}, and its small steps are rounded away.",
        one.op.location,
        evidence=(
            Evidence("accumulator", into.amax, into.dtype, arm=arm.name, step=one.iteration),
            Evidence(
                "largest magnitude added, without effect", added.amax, added.dtype, arm=arm.name, step=one.iteration
            ),
        ),
        confidence=confidence_of_protocol(examination, code),
    )
