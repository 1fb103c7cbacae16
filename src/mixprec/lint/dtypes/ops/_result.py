"""The dtype and the kind of an op's result, where nothing is special about the op."""

from __future__ import annotations

from collections.abc import Callable

from mixprec.formats import BF16, FP16, FP32
from mixprec.lint.dtypes._bounds import ANY, Bounds
from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._region import result
from mixprec.lint.dtypes._values import NO_TAGS, UNKNOWN, Symbol, Tag, Tensor, Value, number_of, options

__all__ = ["Handler", "is_least", "made", "vanishes"]

Handler = Callable[[Call], Value]

_LEAST = frozenset({-FP16.max, -BF16.max, -FP32.max})


def made(
    call: Call, bounds: Bounds = ANY, tags: frozenset[Tag] = NO_TAGS, rank0: bool | None = None
) -> Tensor | Symbol:
    """A tensor with the dtype that the op gives; UNKNOWN where even that it is a tensor is open."""
    operands = call.operands()
    dtypes = call.dtype or result(call.name, operands, call.region)
    if dtypes is None and all(operand is None for operand in operands):
        return UNKNOWN
    return Tensor(dtypes, bounds, rank0, tags)


def vanishes(number: float, tensor: Tensor) -> bool:
    """Whether `number`, which is not 0, becomes 0 in float16, and the tensor is that in some run."""
    return tensor.half and number != 0 and FP16.round(number) == 0


def is_least(value: Value | None) -> bool:
    """Whether `value` is the most negative finite number of a dtype."""
    if value is None:
        return False
    return all(option is Symbol.LEAST or number_of(option) in _LEAST for option in options(value))
