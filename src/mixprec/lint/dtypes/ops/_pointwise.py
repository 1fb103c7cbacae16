"""Functions of each element, and the layers' functions whose result has the dtype of their input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from mixprec.lint.dtypes._bounds import ANY, NOT_NEGATIVE, UNIT, Bounds
from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._dtypes import FORMATS, one
from mixprec.lint.dtypes._region import result
from mixprec.lint.dtypes._values import NO_TAGS, UNKNOWN, Tag, Tensor, Value
from mixprec.lint.dtypes.ops._result import Handler, made, vanishes

__all__ = ["POINTWISE"]

_UNBOUNDED = """
    adaptive_avg_pool3d adaptive_max_pool3d affine_grid asinh atanh avg_pool3d celu cosh cumprod cumsum digamma elu
    erfinv exp2 fold gelu glu hardshrink hardswish leaky_relu lgamma local_response_norm logcumsumexp logit max_pool3d
    mish nan_to_num selu silu sinh softshrink softsign tan tanhshrink acosh trunc unfold2d
"""
_AVERAGES = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d avg_pool1d avg_pool2d ceil floor
    grid_sample interpolate max_pool1d max_pool2d round upsample
"""
_NORMS = "batch_norm group_norm instance_norm layer_norm rms_norm"
_TRUTHS = """
    all allclose any eq equal ge greater greater_equal gt isclose isfinite isinf isnan isneginf isposinf le less
    less_equal logical_and logical_not logical_or logical_xor lt ne
"""
_COUNTS = "argmax argmin argsort bincount bucketize count_nonzero multinomial nonzero one_hot searchsorted"


_RESHAPING = frozenset(
    """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d affine_grid avg_pool1d avg_pool2d avg_pool3d fold glu grid_sample interpolate max_pool1d
    max_pool2d max_pool3d upsample
    """.split()  # noqa: SIM905  # one name per word reads better than a list of 18 strings
)


def _like(bounds: Callable[[Bounds], Bounds], keeps: frozenset[Tag] = NO_TAGS) -> Handler:
    """A function of each element: `bounds` says what becomes of the bounds, `keeps` which tags stay true."""

    def handle(call: Call) -> Value:
        tensor = call.tensor()
        if tensor is None:
            return made(call)
        value = made(call, bounds(tensor.bounds), tensor.tags & keeps, tensor.rank0)
        if not isinstance(value, Tensor):
            return value
        shape = None if call.name in _RESHAPING else tensor.shape
        return replace(value, constant=tensor.constant, shape=shape, origin=tensor.origin)

    return handle


def _norm(call: Call) -> Value:
    value, tensor = made(call, tags=frozenset({Tag.NORMALISED})), call.tensor()
    return replace(value, shape=tensor.shape) if isinstance(value, Tensor) and tensor is not None else value


def _truth(call: Call) -> Value:
    return _whole(call, "bool", UNIT)


def _count(call: Call) -> Value:
    return _whole(call, "int64", NOT_NEGATIVE)


def _whole(call: Call, dtype: str, bounds: Bounds) -> Value:
    return Tensor(one(dtype), bounds) if any(tensor is not None for tensor in call.operands()) else UNKNOWN


def _probability(call: Call) -> Value:
    """Sigmoid and softmax: in 16 bits they round to 1, in float16 to 0 as well, for ordinary arguments."""
    value, tensor = made(call, UNIT), call.tensor()
    if not isinstance(value, Tensor):
        return value
    reached = {Tag.REACHES_ONE: value.low, Tag.REACHES_ZERO: value.half}
    tags = frozenset(tag for tag, holds in reached.items() if holds)
    return value if tensor is None else replace(value, tags=tags, rank0=tensor.rank0, shape=tensor.shape)


def _rectified(call: Call) -> Value:
    """What is below 0 becomes 0."""
    value, tensor = _like(lambda b: b.clamp(0.0, 6.0 if call.name == "relu6" else math.inf))(call), call.tensor()
    cut = isinstance(value, Tensor) and tensor is not None and tensor.bounds.low < 0
    return replace(value, tags=value.tags | {Tag.ZEROED}) if cut and isinstance(value, Tensor) else value


def _clamp(call: Call) -> Value:
    tensor = call.tensor()
    if tensor is None:
        return made(call)
    upper = call.name == "clamp_max"
    low = None if upper else call.number(1, "min")
    high = call.number(1 if upper else 2, "max")
    bounds = tensor.bounds.clamp(-math.inf if low is None else low, math.inf if high is None else high)
    clamped = replace(
        tensor, dtypes=result("clamp", (tensor,), call.region), bounds=bounds, tags=_kept(tensor, low, high)
    )
    if low is not None and low > 0 and vanishes(low, tensor):
        return replace(clamped, tags=clamped.tags | {Tag.VANISHED}, constant=low, origin=call.node)
    return clamped


def _kept(tensor: Tensor, low: float | None, high: float | None) -> frozenset[Tag]:
    """The tags that clamping leaves true: a bound that the dtype can hold keeps values away from 0 or 1."""
    gone = {Tag.NORMALISED, Tag.UPCAST, Tag.WRITTEN_FLOAT}
    if low is not None and low > 0 and not vanishes(low, tensor):
        gone |= {Tag.REACHES_ZERO, Tag.VANISHED, Tag.ZEROED}
    if high is not None and high < 1 and all(_below_one(high, name) for name in tensor.dtypes or ()):
        gone |= {Tag.REACHES_ONE}
    cut = low == 0 and tensor.bounds.low < 0
    return tensor.tags - gone | (frozenset({Tag.ZEROED}) if cut else NO_TAGS)


def _below_one(number: float, dtype: str) -> bool:
    return dtype not in FORMATS or FORMATS[dtype].round(number) < 1


def _same(bounds: Bounds) -> Callable[[Bounds], Bounds]:
    return lambda _: bounds


_BOUNDED: dict[str, Callable[[Bounds], Bounds]] = {
    "abs": Bounds.absolute,
    "acos": _same(Bounds(0.0, math.pi)),
    "asin": _same(Bounds(-2.0, 2.0)),
    "atan": _same(Bounds(-2.0, 2.0)),
    "cos": _same(Bounds(-1.0, 1.0)),
    "erf": _same(Bounds(-1.0, 1.0)),
    "exp": Bounds.exponential,
    "expm1": lambda b: b.exponential() - Bounds(1.0, 1.0),
    "frac": _same(Bounds(-1.0, 1.0)),
    "hardsigmoid": _same(UNIT),
    "hardtanh": lambda b: b.clamp(-1.0, 1.0),
    "log": _same(ANY),
    "log10": _same(ANY),
    "log1p": _same(ANY),
    "log2": _same(ANY),
    "log_softmax": _same(Bounds(-math.inf, 0.0)),
    "logsigmoid": _same(Bounds(-math.inf, 0.0)),
    "neg": lambda b: -b,
    "reciprocal": lambda b: Bounds(1.0, 1.0) / b,
    "rsqrt": _same(NOT_NEGATIVE),
    "sign": _same(Bounds(-1.0, 1.0)),
    "sin": _same(Bounds(-1.0, 1.0)),
    "softplus": _same(NOT_NEGATIVE),
    "square": Bounds.squared,
    "tanh": _same(Bounds(-1.0, 1.0)),
}

POINTWISE: dict[str, Handler] = {
    **dict.fromkeys(_UNBOUNDED.split(), _like(_same(ANY))),
    **dict.fromkeys(_AVERAGES.split(), _like(lambda b: b)),
    **{name: _like(bounds) for name, bounds in _BOUNDED.items()},
    **dict.fromkeys(_NORMS.split(), _norm),
    **dict.fromkeys(_TRUTHS.split(), _truth),
    **dict.fromkeys(_COUNTS.split(), _count),
    **dict.fromkeys(("clamp", "clamp_max", "clamp_min", "clip"), _clamp),
    **dict.fromkeys(("relu", "relu6"), _rectified),
    **dict.fromkeys(("sigmoid", "softmax", "special_expit"), _probability),
    "sqrt": _like(Bounds.root, frozenset({Tag.VANISHED})),
}
"""Elementwise functions, normalisations, pooling, comparisons."""
