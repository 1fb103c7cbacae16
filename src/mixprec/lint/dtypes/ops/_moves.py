"""Ops that put values of one tensor among those of another: joining, scattering, filling, choosing."""

from __future__ import annotations

from dataclasses import replace

from mixprec._policy import CastRule
from mixprec.lint.dtypes._bounds import ANY, Bounds
from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._region import result, rule_of
from mixprec.lint.dtypes._values import NO_TAGS, UNKNOWN, Tag, Tensor, Value
from mixprec.lint.dtypes.ops._result import Handler, is_least

__all__ = ["MOVES", "SOURCES"]

SOURCES: dict[str, tuple[int, str]] = {
    "index_add": (3, "source"),
    "index_copy": (3, "source"),
    "index_put": (2, "values"),
    "lerp": (1, "end"),
    "masked_scatter": (2, "source"),
    "scatter": (3, "src"),
    "scatter_add": (3, "src"),
    "scatter_reduce": (3, "src"),
}
"""Where the ops that write into a tensor have the tensor that is written."""

_ZEROS = Bounds(0.0, 0.0)


def _joined(call: Call) -> Value:
    operands = call.operands()
    known = [tensor for tensor in operands if tensor is not None]
    if not known:
        return UNKNOWN
    bounds, tags = known[0].bounds, known[0].tags
    for tensor in known[1:]:
        bounds, tags = bounds.hull(tensor.bounds), tags & tensor.tags
    if len(known) < len(operands):
        return Tensor(rank0=False)
    with_dimensions = tuple(replace(tensor, rank0=False) for tensor in known)
    return Tensor(result(call.name, with_dimensions, call.region), bounds, False, tags)


def _written(call: Call) -> Value:
    """A copy keeps the first tensor's dtype unless autocast promotes; in place it always does."""
    tensor, source = call.tensor(), call.tensor(*SOURCES[call.name])
    if tensor is None:
        return UNKNOWN
    widest = rule_of(call.name, call.region.device) is CastRule.WIDEST
    if source is None or call.inplace or not (widest and call.region.enabled):
        return Tensor(tensor.dtypes, rank0=tensor.rank0, why=tensor.why)
    return Tensor(result(call.name, (tensor, source), call.region), rank0=tensor.rank0)


def _masked_fill(call: Call) -> Value:
    tensor, number = call.tensor(), call.number(2, "value")
    if tensor is None:
        return UNKNOWN
    bounds = ANY if number is None else tensor.bounds.hull(Bounds(number, number))
    is_mask = is_least(call.get(2, "value")) and tensor.bounds == _ZEROS
    return Tensor(
        tensor.dtypes, bounds, tensor.rank0, frozenset({Tag.MIN_MASK}) if is_mask else NO_TAGS, why=tensor.why
    )


MOVES: dict[str, Handler] = {
    **dict.fromkeys(("cat", "concat", "concatenate", "hstack", "stack", "vstack"), _joined),
    **dict.fromkeys(SOURCES, _written),
    "masked_fill": _masked_fill,
}
"""Joining, scattering and filling."""
