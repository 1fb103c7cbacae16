"""Tensors made from nothing: float32 unless a dtype is asked for, integers where the values are integers."""

from __future__ import annotations

import math
from dataclasses import replace

from mixprec.lint.dtypes._bounds import ANY, NOT_NEGATIVE, UNIT, Bounds
from mixprec.lint.dtypes._call import Call, dtypes_of
from mixprec.lint.dtypes._dtypes import FLOAT32, Dtypes, one
from mixprec.lint.dtypes._values import NO_TAGS, NUMBER, Const, Items, Shape, Tag, Tensor, Value, number_of
from mixprec.lint.dtypes.ops._result import Handler, is_least

__all__ = ["FACTORIES", "NOISE"]

NOISE = frozenset({"rand", "rand_like", "randn", "randn_like"})
"""Random numbers of a floating dtype."""

_CONSTANT: dict[str, Bounds] = {
    "empty": ANY,
    "empty_like": ANY,
    "eye": UNIT,
    "ones": Bounds(1.0, 1.0),
    "ones_like": Bounds(1.0, 1.0),
    "zeros": Bounds(0.0, 0.0),
    "zeros_like": Bounds(0.0, 0.0),
}
_NEW = {"new_empty": "empty", "new_ones": "ones", "new_zeros": "zeros"}
_NORMAL = Bounds(-10.0, 10.0)  # beyond ten standard deviations nothing is ever drawn


def _explicit(call: Call) -> tuple[bool, Dtypes]:
    return "dtype" in call.keywords, dtypes_of(call.keywords.get("dtype"))


def _finish(call: Call, tensor: Tensor) -> Tensor:
    why = f"dtype= in line {call.line}" if tensor.low and "dtype" in call.keywords else tensor.why
    return replace(tensor, why=why, origin=call.node)


def _filled(call: Call) -> Value:
    """zeros, ones, empty, eye and their `_like` and `new_` forms."""
    name = _NEW.get(call.name, call.name)
    like = call.tensor() if call.name in _NEW or name.endswith("_like") else None
    given, dtypes = _explicit(call)
    if not given:
        dtypes = FLOAT32 if not (call.name in _NEW or name.endswith("_like")) else (like.dtypes if like else None)
    rank0 = like.rank0 if name.endswith("_like") and like else _rank0_of_shape(call)
    single = rank0 is True or _few_elements(call)
    tags = frozenset({Tag.ACCUMULATOR}) if name == "zeros" and single else NO_TAGS
    sizes = None if name == "eye" else _sizes(_shape(call))
    shape = like.shape if name.endswith("_like") and like else sizes
    return _finish(call, Tensor(dtypes, _CONSTANT[name], rank0, tags, shape=shape, why=like.why if like else ""))


def _shape(call: Call) -> tuple[Value, ...] | None:
    """The sizes that are asked for; None where open."""
    args = call.args[1:] if call.name in _NEW else call.args
    if len(args) == 1 and isinstance(args[0], Items):
        return args[0].items
    return args if args and all(number_of(arg) is not None or arg is NUMBER for arg in args) else None


def _sizes(values: tuple[Value, ...] | None) -> Shape:
    """Sizes as numbers."""
    if values is None:
        return None
    return tuple(int(size) if (size := number_of(value)) is not None else None for value in values)


def _rank0_of_shape(call: Call) -> bool | None:
    shape = _shape(call)
    return None if shape is None else not shape


_FEW = 4
"""Zeros of at most so many elements are made to add to."""


def _few_elements(call: Call) -> bool:
    shape = _shape(call)
    sizes = [number_of(size) for size in shape] if shape is not None else [None]
    return None not in sizes and math.prod(size for size in sizes if size is not None) <= _FEW


def _full(call: Call) -> Value:
    """full, full_like, new_full: the fill value decides the dtype where nothing else does."""
    likes = call.name != "full"
    like = call.tensor() if likes else None
    number = call.number(2 if call.name == "new_full" else 1, "fill_value")
    fill = call.get(2 if call.name == "new_full" else 1, "fill_value")
    given, dtypes = _explicit(call)
    if not given:
        dtypes = (like.dtypes if like else None) if likes else _dtype_of(fill)
    bounds = ANY if number is None else Bounds(number, number)
    tags = frozenset({Tag.MIN_MASK}) if is_least(fill) else NO_TAGS
    return _finish(call, Tensor(dtypes, bounds, tags=tags, why=like.why if like else ""))


_NUMBERS = frozenset({"float32", "int64"})
"""What a tensor of Python numbers is that are open; that they are truth values is left out of account."""


def _dtype_of(value: Value | None) -> Dtypes:
    """The dtype of a tensor made from a Python value."""
    if isinstance(value, Items) and value.items is not None:
        found = [_dtype_of(item) for item in value.items]
        if FLOAT32 in found:
            return FLOAT32
        return found[0] if found and all(dtype == found[0] for dtype in found) else None
    if isinstance(value, Items):
        return _dtype_of(value.element)
    if value is NUMBER:
        return _NUMBERS
    if not isinstance(value, Const):
        return None
    kinds = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}
    name = kinds.get(type(value.value))
    return None if name is None else one(name)


def _drawn(call: Call) -> Value:
    likes = call.name.endswith("_like")
    like = call.tensor() if likes else None
    given, dtypes = _explicit(call)
    if not given:
        dtypes = FLOAT32 if not likes else (like.dtypes if like else None)
    bounds = UNIT if call.name.startswith("rand_") or call.name == "rand" else _NORMAL
    shape = _sizes(_shape(call)) if not likes else (like.shape if like else None)
    drawn = Tensor(dtypes, bounds, False, frozenset({Tag.NOISE}), shape=shape, why=like.why if like else "")
    return _finish(call, drawn)


def _integers(call: Call) -> Value:
    """Randint and randperm: whole numbers below the last bound."""
    given, dtypes = _explicit(call)
    high = call.number(1, "high") if len(call.args) > 2 or "high" in call.keywords else call.number(0, "high")
    bounds = NOT_NEGATIVE if high is None else Bounds(0.0, max(high - 1.0, 0.0))
    tags = NO_TAGS if high is None else frozenset({Tag.POSITION})
    asked = next((arg for arg in call.args if isinstance(arg, Items)), call.keywords.get("size"))
    shape = _sizes(asked.items) if isinstance(asked, Items) else None
    return _finish(call, Tensor(dtypes if given else one("int64"), bounds, False, tags, shape=shape))


def _counted(call: Call) -> Value:
    """arange: whole numbers, unless a float stands among its arguments."""
    numbers = [number_of(arg) for arg in call.args[:3]]
    floats = any(isinstance(arg, Const) and isinstance(arg.value, float) for arg in call.args)
    given, dtypes = _explicit(call)
    if not given:
        dtypes = FLOAT32 if floats else one("int64")
    start, end = (0.0, numbers[0]) if len(numbers) == 1 else (*numbers[:2], None, None)[:2]
    bounds = Bounds(0.0 if start is None else start)
    if start is not None and end is not None:
        bounds = Bounds(min(start, end), max(start, end - 1.0))
    tags = NO_TAGS if floats else frozenset({Tag.POSITION})
    return _finish(call, Tensor(dtypes, bounds, False, tags))


def _spaced(call: Call) -> Value:
    ends = [call.number(0, "start"), call.number(1, "end")]
    known = [end for end in ends if end is not None]
    given, dtypes = _explicit(call)
    bounds = Bounds(min(known), max(known)) if len(known) == 2 and call.name == "linspace" else ANY
    return _finish(call, Tensor(dtypes if given else FLOAT32, bounds, False))


def _literal(call: Call) -> Value:
    """torch.tensor: the values decide."""
    value = call.get(0, "data")
    given, dtypes = _explicit(call)
    number = number_of(value) if value is not None else None
    rank0 = True if isinstance(value, Const) or value is NUMBER else (False if isinstance(value, Items) else None)
    single = rank0 or (isinstance(value, Items) and value.items is not None and len(value.items) == 1)
    zero = number == 0.0 or (isinstance(value, Items) and value.items is not None and all(map(_zero, value.items)))
    tags = frozenset({Tag.ACCUMULATOR}) if single and zero else NO_TAGS
    bounds = ANY if number is None else Bounds(number, number)
    return _finish(call, Tensor(dtypes if given else _dtype_of(value), bounds, rank0, tags))


def _zero(value: Value) -> bool:
    return number_of(value) == 0.0


def _converted(call: Call) -> Value:
    """as_tensor, from_numpy: the dtype is that of what comes in."""
    given, dtypes = _explicit(call)
    return _finish(call, Tensor(dtypes if given else None))


FACTORIES: dict[str, Handler] = {
    **dict.fromkeys((*_CONSTANT, *_NEW), _filled),
    **dict.fromkeys(("full", "full_like", "new_full"), _full),
    **dict.fromkeys(NOISE, _drawn),
    **dict.fromkeys(("randint", "randint_like", "randperm"), _integers),
    **dict.fromkeys(("linspace", "logspace"), _spaced),
    **dict.fromkeys(("as_tensor", "from_numpy", "asarray"), _converted),
    "arange": _counted,
    "new_tensor": lambda call: _literal(replace(call, args=call.args[1:])),
    "tensor": _literal,
}
"""Functions and methods that make tensors."""
