"""Constants that stand for "never": too large for FP16, or added to each other."""

from __future__ import annotations

from mixprec.doctor.judges._located import Fault
from mixprec.formats import find_format
from mixprec.records import TensorStats

__all__ = ["constant_that_overflows", "masks_that_meet"]

PLACING = frozenset(
    {"fill_", "fill", "full", "masked_fill", "masked_fill_", "where", "copy_", "_to_copy", "index_put", "index_put_"}
    | {"add", "add_", "sub", "sub_", "rsub", "index_fill", "index_fill_", "scalar_tensor", "full_like", "new_full"}
)
FILLING = frozenset(name for name in PLACING if "fill" in name or "full" in name) | {"where", "index_put", "index_put_"}
LIMIT = find_format("float16").max


def constant_that_overflows(fault: Fault) -> bool:
    """Whether a number that the script wrote, and not one that it computed, became infinite in FP16."""
    if fault.packet in ("mul", "mul_"):
        return not fault.backward and _stretched(fault)
    if fault.packet not in PLACING or fault.backward or masks_that_meet(fault):
        return False
    if fault.role == "given":
        return _assigned(fault)
    own = _own(fault)
    on_line = fault.traced.constants if fault.packet in FILLING else ()
    written = any(abs(value) > LIMIT for value in (*own, *on_line))
    uniform = any(_one_value(stats) and stats.amax > LIMIT for stats in (*fault.op.inputs, *fault.op.exact))
    return written or uniform


def _own(fault: Fault) -> list[float]:
    """The numbers among the op's arguments."""
    return [float(v) for _, v in fault.op.scalars if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _stretched(fault: Fault) -> bool:
    """Whether a mask of zeros and ones is multiplied by a number that FP16 cannot hold."""
    mask = fault.op.inputs[:1]
    return any(abs(value) > LIMIT for value in _own(fault)) and all(_one_value(s) and s.amax <= 1.0 for s in mask)


def _assigned(fault: Fault) -> bool:
    """Whether Python made a 16-bit scalar of a number, as `scores[i] = 1e9` does, and the line does not say inf."""
    scalar = any(stats.infs and stats.shape == () and stats.dtype == "float16" for stats in fault.op.inputs)
    return scalar and fault.op.call in ("__setitem__", "fill_", "copy_") and "inf" not in fault.traced.source.lower()


def masks_that_meet(fault: Fault) -> bool:
    """Whether two masks of the smallest FP16 number were added."""
    if fault.packet not in ("add", "add_", "sub", "sub_") or fault.backward or len(fault.op.inputs) < 2:
        return False
    return all(stats.dtype == "float16" and stats.amax >= 0.9 * LIMIT for stats in fault.op.inputs[:2])


def _one_value(stats: TensorStats) -> bool:
    """Whether every element that is not 0 has the same magnitude."""
    return stats.amax > 0 and stats.amin == stats.amax
