"""One class per cast rule: what happens to one call. The table in `mixprec._policy.rule` is what they implement.

A rule is called as `rule(place, function, args, kwargs)`, where `place` is the interceptor that is active. While it
makes the call, PyTorch's own cast of the op is kept out: the rule is all that happens.

Eligible tensors are floating-point, on the region's device and not float64; they may be in lists, tuples and dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch.amp import autocast_mode

from mixprec._autocast._cache import CastCache, is_weight, may_share
from mixprec._policy import CastRule, Decision, Sharing
from mixprec.errors import BannedOpError

__all__ = ["AsMethod", "Call", "Opening", "Place", "cast_all", "keep", "plain", "reentered", "rule_for"]

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


class Place(Protocol):
    """What a rule has to know about where it acts. `on_device`: the attribute of tensors that tells, or empty."""

    device_type: str
    on_device: str
    cache: CastCache
    sharing: Sharing
    faithful: bool
    whole: bool


class Call(Protocol):
    """A rule, or whatever else handles one call of a function under a mode."""

    def __call__(self, place: Any, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any: ...


def rule_for(decision: Decision) -> Call:
    """What to do with a call of the op that was decided about."""
    if decision.rule is CastRule.BANNED:
        return _Banned(decision)
    if decision.rule is CastRule.WIDEST:
        return _Widest(optional=_OPTIONAL_TENSORS.get(decision.op, ()))
    if decision.rule is CastRule.FP32_OUT and decision.op not in _DTYPE_IN_SOME_OVERLOADS:
        return _float32_out
    return _CALLS[decision.rule]


_OPTIONAL_TENSORS: Mapping[str, tuple[int | str, ...]] = {"bilinear": (3, "bias")}
"""Arguments that PyTorch declares as optional tensors, and therefore does not look at when it promotes."""

_DTYPE_IN_SOME_OVERLOADS = frozenset({"norm"})
"""Ops whose shortest overload takes no `dtype=`; the input is cast instead, to the same result."""


def _low(place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    if _writes(kwargs) or not torch.is_autocast_enabled(place.device_type):
        return function(*args, **kwargs)
    return _call_cast(place, function, args, kwargs, torch.get_autocast_dtype(place.device_type))


def _float32(place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    if _writes(kwargs) or not torch.is_autocast_enabled(place.device_type):
        return function(*args, **kwargs)
    return _call_cast(place, function, args, kwargs, torch.float32)


def _float32_out(place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    if _writes(kwargs) or not torch.is_autocast_enabled(place.device_type):
        return function(*args, **kwargs)
    if _eligible(place, _first(args, kwargs)) and not _names_dtype(args, kwargs):
        kwargs = {**kwargs, "dtype": torch.float32}
    return _alone(place, function, args, kwargs)


def keep(place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    if not torch.is_autocast_enabled(place.device_type):
        return function(*args, **kwargs)
    return _alone(place, function, args, kwargs)


def plain(place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """The call as it is: with PyTorch's own casts, unless the policy is applied whole."""
    return keep(place, function, args, kwargs) if place.whole else function(*args, **kwargs)


class _Widest:
    """Casts to float32 if any eligible tensor is float32, else to the region's dtype."""

    def __init__(self, optional: tuple[int | str, ...]) -> None:
        self.optional = optional

    def __call__(self, place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        if _writes(kwargs) or not torch.is_autocast_enabled(place.device_type):
            return function(*args, **kwargs)
        low = torch.get_autocast_dtype(place.device_type)
        return _call_cast(place, function, args, kwargs, self._widest(place, low, args, kwargs))

    def _widest(self, place: Place, low: torch.dtype, args: Args, kwargs: Kwargs) -> torch.dtype:
        named = [*enumerate(args), *kwargs.items()]
        seen = [value for name, value in named if not (place.faithful and name in self.optional)]
        widest = low
        for tensor in _tensors(seen):
            if not _eligible(place, tensor) or tensor.dtype is low:
                continue
            if place.faithful and tensor.dtype is not torch.float32 and widest is low:
                raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
            widest = torch.float32
        return widest


class Opening:
    """Runs a Python function's body with the mode on, so that the ops inside it are seen."""

    def __init__(self, copy: Callable[..., Any]) -> None:
        self.copy = copy

    def __call__(self, place: Any, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        if not torch.is_autocast_enabled(place.device_type):
            return function(*args, **kwargs)
        with place:
            return self.copy(*args, **kwargs)


def reentered(place: Any, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """While compiling, a checkpoint is one op whose first argument is a function: that function runs under the mode.

    Dynamo lets nobody begin to change the stack of modes inside of it; a change begun outside may go on there.
    """
    body = args[0]

    def under_mode(*inner_args: Any, **inner_kwargs: Any) -> Any:
        with place:
            return body(*inner_args, **inner_kwargs)

    with place:
        pass
    return function(under_mode, *args[1:], **kwargs)


class AsMethod:
    """Calls a method of `Tensor` that goes on to the builtin it overrides; torch.compile traces it in no other form."""

    def __call__(self, place: Any, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        return getattr(args[0], function.__name__)(*args[1:], **kwargs)


class _Banned:
    """Raises, if a tensor of the region's device is involved."""

    def __init__(self, decision: Decision) -> None:
        self.error = BannedOpError(decision.op, decision.reason, decision.replacement)
        self.text = str(self.error)

    def __call__(self, place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        here = any(t.device.type == place.device_type for t in _tensors([*args, *kwargs.values()]))
        if here and torch.is_autocast_enabled(place.device_type):
            if torch.compiler.is_compiling():
                raise RuntimeError(self.text)  # Dynamo shows the text of built-in errors only
            raise BannedOpError(self.error.op, self.error.reason, self.error.replacement)
        return function(*args, **kwargs)


_CALLS: Mapping[CastRule, Call] = {
    CastRule.LOW: _low,
    CastRule.FP32: _float32,
    CastRule.FP32_OUT: _float32,
    CastRule.KEEP: keep,
}


def cast_all(place: Place, args: Args, kwargs: Kwargs, dtype: torch.dtype) -> tuple[Args, Kwargs]:
    """The arguments of a call with every eligible tensor in `dtype`."""
    args = tuple([_cast(place, a, dtype) for a in args])
    if kwargs:
        kwargs = {name: _cast(place, value, dtype) for name, value in kwargs.items()}
    return args, kwargs


def _call_cast(place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs, dtype: torch.dtype) -> Any:
    args, kwargs = cast_all(place, args, kwargs, dtype)
    return _alone(place, function, args, kwargs)


def _alone(place: Place, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Call without PyTorch's own casts. Dynamo traces the region; eagerly, the flag that it sets is cheaper."""
    if torch.compiler.is_compiling():
        with autocast_mode.autocast(place.device_type, enabled=False):
            return function(*args, **kwargs)
    torch.set_autocast_enabled(place.device_type, False)
    try:
        return function(*args, **kwargs)
    finally:
        torch.set_autocast_enabled(place.device_type, True)


def _cast(place: Place, value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.dtype is dtype or not _eligible(place, value) else _copy(place, value, dtype)
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_cast(place, v, dtype) for v in value])
    if kind is dict:
        return {name: _cast(place, v, dtype) for name, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
        return kind._make([_cast(place, v, dtype) for v in value])
    return value


def _copy(place: Place, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return tensor.to(dtype)
    shared = place.sharing is Sharing.EVERYTHING or (dtype is not torch.float32 and is_weight(tensor))
    if shared and may_share(tensor):
        return place.cache.cast(tensor, dtype)
    return place.cache.cast_anew(tensor, dtype)


def _eligible(place: Place, value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype.is_floating_point
        and value.dtype is not torch.float64
        and (getattr(value, place.on_device) if place.on_device else value.device.type == place.device_type)
    )


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(_tensors(value))
    return found


def _first(args: Args, kwargs: Kwargs) -> Any:
    return args[0] if args else kwargs.get("input", kwargs.get("self"))


def _names_dtype(args: Args, kwargs: Kwargs) -> bool:
    return kwargs.get("dtype") is not None or any(isinstance(a, torch.dtype) for a in args)


def _writes(kwargs: Kwargs) -> bool:
    return "out" in kwargs and kwargs["out"] is not None
