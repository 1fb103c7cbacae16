"""Sums, means, norms, extremes: without a dimension the result is one number."""

from __future__ import annotations

import math
from dataclasses import replace

from mixprec.lint.dtypes._bounds import ANY, NOT_NEGATIVE, Bounds
from mixprec.lint.dtypes._call import Call, as_tensor
from mixprec.lint.dtypes._dtypes import one
from mixprec.lint.dtypes._region import result
from mixprec.lint.dtypes._values import UNKNOWN, Items, Tag, Tensor, Value
from mixprec.lint.dtypes.ops._result import Handler, made

__all__ = ["REDUCTIONS"]

_NORMS = frozenset(["cdist", "frobenius_norm", "matrix_norm", "norm", "pairwise_distance", "std", "var", "vector_norm"])
_WITH_ORDER = frozenset({"matrix_norm", "norm", "vector_norm"})
_INSIDE = frozenset(["amax", "amin", "mean", "median", "nanmean", "nanmedian", "quantile"])
_SUMS = frozenset({"sum", "nansum"})
_OTHERS = frozenset(["cosine_similarity", "logsumexp", "prod", "trace"])
_RANKED = "cummax cummin kthvalue mode sort topk"


def _reduce(call: Call) -> Value:
    tensor, rank0 = call.tensor(), True if _takes_all(call) else None
    if tensor is None:
        return made(call, rank0=rank0)
    value = made(call, _bounds(call.name, tensor.bounds), rank0=rank0)
    if isinstance(value, Tensor) and call.name in ("sum", "prod") and tensor.only("bool"):
        return replace(value, dtypes=one("int64"))
    return value


def _takes_all(call: Call) -> bool:
    """Whether no dimension is named. The order of a norm stands before its dimension."""
    return len(call.args) <= 1 + (call.name in _WITH_ORDER) and not {"dim", "axis"} & set(call.keywords)


def _bounds(name: str, bounds: Bounds) -> Bounds:
    if name in _NORMS:
        return NOT_NEGATIVE
    if name in _INSIDE:
        return bounds
    if name in _SUMS:
        return Bounds(0.0 if bounds.low >= 0 else -math.inf, 0.0 if bounds.high <= 0 else math.inf)
    return ANY


def _extreme(call: Call) -> Value:
    """Max and min: of all, along a dimension with the places, or of two tensors."""
    tensor, other = call.tensor(), call.get(1, "other")
    if tensor is None:
        return made(call)
    if as_tensor(other) is not None:
        return _of_two(call)
    kept = Tensor(tensor.dtypes, tensor.bounds, None, tensor.tags & {Tag.POSITION}, why=tensor.why)
    if other is None and not {"dim", "axis"} & set(call.keywords):
        return replace(kept, rank0=True)
    return Items((kept, Tensor(one("int64"), NOT_NEGATIVE)))


def _of_two(call: Call) -> Value:
    first, second = call.tensor(0), call.tensor(1, "other")
    if first is None or second is None:
        return made(call)
    pick = max if call.name in ("maximum", "max", "fmax") else min
    bounds = Bounds(pick(first.bounds.low, second.bounds.low), pick(first.bounds.high, second.bounds.high))
    return made(call, bounds)


def _ranked(call: Call) -> Value:
    tensor = call.tensor()
    return UNKNOWN if tensor is None else Items((replace(tensor, shape=None), Tensor(one("int64"), NOT_NEGATIVE)))


def _normalize(call: Call) -> Value:
    """F.normalize divides by a norm, which autocast takes in float32 where its list says so."""
    tensor = call.tensor()
    if tensor is None:
        return UNKNOWN
    norm = result("norm", (tensor,), call.region)
    operands = (replace(tensor, rank0=False), Tensor(norm, rank0=False))
    return Tensor(result("div", operands, call.region), Bounds(-1.0, 1.0), False, frozenset({Tag.NORMALISED}))


REDUCTIONS: dict[str, Handler] = {
    **dict.fromkeys(_NORMS | _INSIDE | _SUMS | _OTHERS, _reduce),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("fmax", "fmin", "maximum", "minimum"), _of_two),
    **dict.fromkeys(_RANKED.split(), _ranked),
    "normalize": _normalize,
}
"""Reductions, extremes, and what is built of them."""
