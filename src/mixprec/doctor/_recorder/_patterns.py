"""Shapes in a graph of traced ops that say what a number is, whatever it is called."""

from __future__ import annotations

from collections.abc import Mapping

from mixprec.formats import find_format
from mixprec.records import OpRecord

__all__ = ["cancels", "drawn_in_half"]

LOW = ("float16", "bfloat16")
DRAWS = frozenset({"rand", "randn", "normal", "normal_", "uniform_", "normal_functional", "rand_like", "randn_like"})
ASKED = frozenset({"rand", "randn", "normal", "normal_", "uniform_"})
"""Calls of the user's that name the dtype, or the tensor to fill; the `_like` ones take what they are given."""
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "mv", "dot"})
ROOM = 16.0
"""Units in the last place of the operands: a difference that is nowhere larger has lost all but four of its bits."""


def _packet(record: OpRecord) -> str:
    return record.op.split(".")[1] if record.op.count(".") else record.op


def drawn_in_half(record: OpRecord) -> bool:
    """Whether random numbers that a line of the script asks for are drawn in 16 bits."""
    made = record.outputs[0].dtype if record.outputs else ""
    return _packet(record) in DRAWS and record.call in ASKED and made in LOW and record.phase == "forward"


def cancels(record: OpRecord, by_index: Mapping[int, OpRecord]) -> bool:
    """A difference of 16-bit squares, or of squares and a product, that is lost in the rounding of its operands.

    Mean of squares minus squared mean; sum of squares minus twice a product. A difference of two numbers that were not
    squared (an error that has become small) is none.
    """
    if _packet(record) not in ("sub", "sub_", "rsub") or record.phase != "forward" or len(record.inputs) < 2:
        return False
    first, second = record.inputs[:2]
    if not record.outputs or {first.dtype, second.dtype, record.outputs[0].dtype} - set(LOW):
        return False
    size = max(first.amax, second.amax)
    if not (first.finite and second.finite) or min(first.amax, second.amax) < size / 2 or size <= 0:
        return False
    if not 0 < record.outputs[0].amax <= ROOM * find_format(first.dtype).spacing(size):
        return False
    left, right = (_squares(by_index.get(i) if i is not None else None, by_index, 4) for i in record.sources[:2])
    other = record.sources[1] if left else record.sources[0]
    return (left and right) or ((left or right) and _multiplies(by_index.get(other or -1), by_index, 3))


def _squares(record: OpRecord | None, by_index: Mapping[int, OpRecord], hops: int) -> bool:
    """Whether a number is a square, or was summed, averaged or reshaped from squares."""
    if record is None or hops < 0:
        return False
    packet = _packet(record)
    if packet in ("square", "square_") or (packet in ("pow", "pow_") and dict(record.scalars).get("exponent") == 2):
        return True
    own = [i for i in record.sources if i is not None]
    if packet in ("mul", "mul_") and len(record.inputs) > 1 and record.inputs[0] == record.inputs[1]:
        return len(set(own)) < 2
    return any(_squares(by_index.get(i), by_index, hops - 1) for i in own)


def _multiplies(record: OpRecord | None, by_index: Mapping[int, OpRecord], hops: int) -> bool:
    """Whether a number is a matrix product, or a multiple of one."""
    if record is None or hops < 0:
        return False
    own = [i for i in record.sources if i is not None]
    return _packet(record) in PRODUCTS or any(_multiplies(by_index.get(i), by_index, hops - 1) for i in own[:1])
