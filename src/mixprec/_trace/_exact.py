"""What a 16-bit op would have given in float32 arithmetic on the same inputs: the measure of what its format lost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mixprec._trace._nested import tensors_in
from mixprec._trace._schema import Schema

__all__ = ["exactly"]

_HALF = frozenset({torch.float16, torch.bfloat16})
_UNREPEATABLE = ("empty", "new_empty", "resize", "set_")


def exactly(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> tuple[Tensor, ...]:
    """The op's outputs in float32; nothing for an op that draws random numbers, writes in place or has no such kernel.

    A cast's exact output is its input. **Cost** the op once more, and its operands in float32 meanwhile.
    """
    half = any(t.dtype in _HALF for t in tensors_in(result))
    if not half or schema.random or schema.writes or not _repeatable(schema):
        return ()
    try:
        with torch.no_grad():
            again = schema.func(*_widened(args), **{name: _widened(value) for name, value in kwargs.items()})
    except (RuntimeError, TypeError, ValueError, NotImplementedError):  # no float32 form of these arguments
        return ()
    return tuple(tensors_in(again))


def _repeatable(schema: Schema) -> bool:
    """Whether running the op again costs nothing but time: no uninitialised memory, no other rank to wait for."""
    return not schema.packet.startswith(_UNREPEATABLE) and "c10d" not in schema.name


def _widened(value: Any) -> Any:
    """`value` with float32 in the place of every 16-bit tensor and dtype."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in _HALF else value
    if isinstance(value, torch.dtype):
        return torch.float32 if value in _HALF else value
    if isinstance(value, (list, tuple)):
        return type(value)(_widened(one) for one in value)
    return value
