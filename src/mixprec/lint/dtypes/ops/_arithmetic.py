"""Sums, products, quotients and powers of tensors and Python numbers: where constants vanish and masks overflow."""

from __future__ import annotations

from dataclasses import replace

from mixprec.lint.dtypes._bounds import ANY, Bounds
from mixprec.lint.dtypes._call import Call, as_tensor
from mixprec.lint.dtypes._dtypes import Dtypes, promote_with_number
from mixprec.lint.dtypes._region import result
from mixprec.lint.dtypes._values import NO_TAGS, NUMBER, UNKNOWN, Const, Shape, Symbol, Tag, Tensor, Value, number_of
from mixprec.lint.dtypes.ops._result import Handler, is_least, made, vanishes

__all__ = ["ARITHMETIC"]

_UNIT = Bounds(0.0, 1.0)


def _bounds_of(value: Value | None) -> Bounds:
    tensor = as_tensor(value)
    if tensor is not None:
        return tensor.bounds
    number = None if value is None else number_of(value)
    return ANY if number is None else Bounds(number, number)


def _dtypes(call: Call, first: Value | None, second: Value | None) -> Dtypes:
    """Of a combination of two operands, of which at least one is a tensor."""
    tensors = [as_tensor(first), as_tensor(second)]
    if tensors[0] is not None and tensors[1] is not None:
        return result(call.name, (tensors[0], tensors[1]), call.region)
    tensor, other = (tensors[0], second) if tensors[0] is not None else (tensors[1], first)
    if tensor is None or not _is_number(other):
        return None
    return result(call.name, (replace(tensor, dtypes=promote_with_number(tensor.dtypes, _number(other))),), call.region)


def _is_number(value: Value | None) -> bool:
    """Whether `value` is a Python number, known or open."""
    return value in (NUMBER, Symbol.LEAST) or (isinstance(value, Const) and isinstance(value.value, (int, float)))


def _number(value: Value | None) -> object:
    return value.value if isinstance(value, Const) else 0.5


def _rank0(first: Value | None, second: Value | None) -> bool | None:
    known = [tensor.rank0 for tensor in (as_tensor(first), as_tensor(second)) if tensor is not None]
    if False in known:
        return False
    return True if known and all(known) and None not in known else None


def _shape(first: Value | None, second: Value | None) -> Shape:
    """That of the only tensor, or of two with the same; of others broadcasting decides."""
    shapes = [tensor.shape for tensor in (as_tensor(first), as_tensor(second)) if tensor is not None]
    alone = len(shapes) == 1 and (_is_number(first) or _is_number(second))
    return shapes[0] if alone or (len(shapes) == 2 and shapes[0] == shapes[1]) else None


def _pair(call: Call) -> tuple[Value | None, Value | None]:
    return call.get(0, "input"), call.get(1, "other")


def _combined(call: Call, bounds: Bounds, tags: frozenset[Tag] = NO_TAGS) -> Tensor | Symbol:
    first, second = _pair(call)
    if as_tensor(first) is None and as_tensor(second) is None:
        return UNKNOWN
    dtypes = call.dtype or _dtypes(call, first, second)
    if call.inplace:
        tensor = as_tensor(first)
        dtypes = tensor.dtypes if tensor is not None else None
    value = Tensor(dtypes, bounds, _rank0(first, second), tags, shape=_shape(first, second))
    return replace(value, tags=tags | {Tag.PROMOTED}, origin=call.node) if _lifts(value, first, second) else value


def _lifts(value: Tensor, first: Value | None, second: Value | None) -> bool:
    """Whether a 16-bit operand became float32 because the other one is."""
    tensors = as_tensor(first), as_tensor(second)
    return value.only("float32") and any(tensor is not None and tensor.low for tensor in tensors)


def _add(call: Call) -> Value:
    first, second = _pair(call)
    value = _combined(call, _bounds_of(first) + _bounds_of(second) if "alpha" not in call.keywords else ANY)
    return _with_constant(call, value, 1.0)


def _sub(call: Call) -> Value:
    first, second = _pair(call)
    value = _combined(call, _bounds_of(first) - _bounds_of(second) if "alpha" not in call.keywords else ANY)
    return _with_constant(call, value, -1.0)


def _with_constant(call: Call, value: Tensor | Symbol, sign: float) -> Value:
    """A sum or difference with a number: the tensor's nature stays, and the number may vanish."""
    first, second = _pair(call)
    if not isinstance(value, Tensor):
        return value
    tensor, number = _tensor_and_number(first, second)
    if tensor is None:
        return replace(value, tags=value.tags | _positions(first, second))
    kept = set(tensor.tags & {Tag.POSITION, Tag.UPCAST, Tag.WRITTEN_FLOAT, Tag.DIVIDED})
    if number is not None and vanishes(number, tensor):
        kept |= (tensor.tags & {Tag.REACHES_ZERO, Tag.REACHES_ONE}) | {Tag.VANISHED}
        return replace(value, tags=frozenset(kept), constant=number, origin=call.node)
    if number == 1.0 and sign < 0 and number_of(first or UNKNOWN) == 1.0:
        kept |= _turned(tensor)
    return replace(value, tags=frozenset(kept))


def _turned(tensor: Tensor) -> set[Tag]:
    """Of `1 - p`."""
    swapped = {Tag.REACHES_ONE: Tag.REACHES_ZERO, Tag.REACHES_ZERO: Tag.REACHES_ONE}
    return {swapped[tag] for tag in tensor.tags if tag in swapped}


def _positions(first: Value | None, second: Value | None) -> frozenset[Tag]:
    tensors = [as_tensor(first), as_tensor(second)]
    counts = any(tensor is not None and Tag.POSITION in tensor.tags for tensor in tensors)
    masks = all(tensor is not None and Tag.MIN_MASK in tensor.tags for tensor in tensors)
    return frozenset({Tag.POSITION} if counts else ()) | frozenset({Tag.MIN_MASK} if masks else ())


def _tensor_and_number(first: Value | None, second: Value | None) -> tuple[Tensor | None, float | None]:
    """(the only tensor, the number beside it); no tensor where both are tensors."""
    tensors = as_tensor(first), as_tensor(second)
    if tensors[0] is not None and tensors[1] is None:
        return tensors[0], number_of(second) if second is not None else None
    if tensors[1] is not None and tensors[0] is None:
        return tensors[1], number_of(first) if first is not None else None
    return None, None


def _mul(call: Call) -> Value:
    first, second = _pair(call)
    value = _combined(call, _bounds_of(first) * _bounds_of(second))
    if not isinstance(value, Tensor):
        return value
    tags = set(value.tags | (_positions(first, second) & {Tag.POSITION}) | _scaled(first, second))
    tensors = [as_tensor(first), as_tensor(second)]
    if any(is_least(v) for v in (first, second)) and any(t is not None and _within_unit(t) for t in tensors):
        tags.add(Tag.MIN_MASK)
    return replace(value, tags=frozenset(tags))


def _scaled(first: Value | None, second: Value | None) -> frozenset[Tag]:
    """A tensor that is only scaled by a number was converted for what comes next."""
    for value, other in ((first, second), (second, first)):
        tensor = as_tensor(value)
        if tensor is not None and other is not None and _is_number(other):
            return tensor.tags & {Tag.UPCAST, Tag.WRITTEN_FLOAT}
    return NO_TAGS


def _within_unit(tensor: Tensor) -> bool:
    return tensor.bounds.low >= _UNIT.low and tensor.bounds.high <= _UNIT.high


def _div(call: Call) -> Value:
    first, second = _pair(call)
    value = _combined(call, _bounds_of(first) / _bounds_of(second))
    if not isinstance(value, Tensor):
        return value
    tensor = as_tensor(first)
    kept = tensor.tags & {Tag.GRADIENT, Tag.POSITION, Tag.ZEROED} if tensor is not None else NO_TAGS
    divided = replace(value, tags=value.tags | kept | _scaled(first, second) | {Tag.DIVIDED})
    if divided.dtypes is not None and call.name != "floor_divide" and not call.inplace:
        return replace(divided, dtypes=promote_with_number(divided.dtypes, 0.5))
    return divided


def _pow(call: Call) -> Value:
    tensor, power = call.tensor(), call.number(1, "exponent")
    if tensor is None:
        return made(call)
    bounds = tensor.bounds.squared() if power == 2 else (Bounds(0.0) if tensor.bounds.low >= 0 else ANY)
    kept = tensor.tags & {Tag.VANISHED} if power is not None and 0 < power < 1 else NO_TAGS
    return Tensor(_dtypes(call, tensor, call.get(1, "exponent")), bounds, tensor.rank0, kept, tensor.constant)


def _where(call: Call) -> Value:
    """`where(condition, a, b)`: the number among a and b becomes part of the tensor."""
    if len(call.args) < 3:
        return UNKNOWN
    first, second = call.args[1], call.args[2]
    if as_tensor(first) is None and as_tensor(second) is None:
        return UNKNOWN
    bounds = _bounds_of(first).hull(_bounds_of(second))
    least = [is_least(value) or _is_min(value) for value in (first, second)]
    zero = [_bounds_of(value) == Bounds(0.0, 0.0) for value in (first, second)]
    tags = frozenset({Tag.MIN_MASK}) if any(least) and any(zero) else NO_TAGS
    return Tensor(_dtypes(call, first, second), bounds, None, tags)


def _is_min(value: Value) -> bool:
    tensor = as_tensor(value)
    return tensor is not None and Tag.MIN_MASK in tensor.tags


def _fused(call: Call) -> Value:
    return made(call)


ARITHMETIC: dict[str, Handler] = {
    **dict.fromkeys(("add", "radd"), _add),
    **dict.fromkeys(("sub", "subtract"), _sub),
    **dict.fromkeys(("mul", "multiply", "outer", "ger"), _mul),
    **dict.fromkeys(("div", "divide", "true_divide", "floor_divide"), _div),
    **dict.fromkeys(("remainder", "fmod", "atan2", "xlogy", "addcmul", "addcdiv", "cross"), _fused),
    "pow": _pow,
    "where": _where,
}
"""Arithmetic of two operands."""
