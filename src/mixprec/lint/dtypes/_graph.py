"""Where gradients surely flow: what is computed from parameters, or from such a result, while they are recorded."""

from __future__ import annotations

from dataclasses import replace

from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._dtypes import FLOATS
from mixprec.lint.dtypes._values import Tag, Tensor, Value

__all__ = ["with_graph"]

_LEARNED = frozenset({Tag.LEARNED})
_CUTS = frozenset({"argmax", "argmin", "detach", "detach_", "empty_like", "ones_like", "sign", "zeros_like"})


def with_graph(call: Call, value: Value, no_grad: bool | None) -> Value:
    """The result of an op, marked as learned where it surely is, and not where it surely is not."""
    if not isinstance(value, Tensor):
        return value
    operands = [tensor for tensor in call.operands() if tensor is not None]
    learns = any(tensor.tags & {Tag.LEARNED, Tag.PARAMETER} for tensor in operands)
    floating = value.dtypes is None or bool(value.dtypes & FLOATS)
    if learns and floating and no_grad is False and call.name not in _CUTS and "_like" not in call.name:
        return replace(value, tags=value.tags | _LEARNED)
    return replace(value, tags=value.tags - _LEARNED) if Tag.LEARNED in value.tags else value
