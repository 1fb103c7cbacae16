"""MP065, MP168: whole numbers that count or place are in a 16-bit format that cannot tell neighbours apart.

If the script had made them FP32 and autocast cast them back for a matmul, .float() was no island.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, TracedOp
from mixprec.doctor.judges._located import traced
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.formats import find_format
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """An op that the location arm saw put such numbers into 16 bits."""
    for arm, one in traced(examination, "saturating"):
        if one.op.phase in ("forward", "recompute") and one.op.outputs:
            code = "MP168" if _cast_back(one) else "MP065"
            return _say(examination, arm, one, code)
    return None


def _cast_back(one: TracedOp) -> bool:
    """Whether autocast made the cast, of a value that the line calls .float()."""
    return one.op.cast and one.op.autocast is not None and (".float()" in one.source or "float32" in one.source)


def _say(examination: Examination, arm: Arm, one: TracedOp, code: str) -> Verdict:
    dtype = one.op.outputs[0].dtype
    exact = find_format(dtype).max_exact_integer
    return say(
        code,
        f"autocast casts these FP32 numbers back to {dtype} for the matrix product: .float() is no island."
        if code == "MP168"
        else f"Positions up to {one.op.outputs[0].amax:g} are kept in {dtype}, which counts to {exact}.",
        one.op.location,
        evidence=(
            Evidence("largest position", one.op.outputs[0].amax, dtype, arm=arm.name, step=one.iteration),
            Evidence(f"largest whole number up to which {dtype} is exact", exact, arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, code),
    )
