"""Nested values of a batch or a state as JSON beside a flat table of tensors, and back; nothing is ever pickled.

What is neither a tensor, a plain value nor a container of them is left out by name, and the rest is kept. Reading
builds classes only of modules that the program has imported already, so a file cannot make it import anything.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["LeftOut", "Reader", "Writer"]

Node = Any
"""JSON: a plain value as itself, everything else as `[kind, …]`."""


class LeftOut:
    """Stands where a value of type `kind` could not be saved."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"LeftOut({self.kind!r})"


class Writer:
    """Turns values into JSON and collects their tensors (detached, not copied) under keys `0`, `1`, ….

    `tensors` is the table, `left_out` the types that could not be saved with the place of each.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.left_out: list[str] = []
        self._keys: dict[int, str] = {}
        self._alive: list[Tensor] = []

    def write(self, value: Any, where: str = "") -> Node:
        """`value` as JSON; `where` names it in `left_out`."""
        if value is None or isinstance(value, bool) or type(value) in (int, str):
            return value
        if isinstance(value, enum.Enum):
            return self.write(value.value, where)
        if isinstance(value, (int, str)):
            return int(value) if isinstance(value, int) else str(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else ["float", str(value)]
        if isinstance(value, Tensor):
            return self._tensor(value, where)
        leaf = _leaf(value)
        return self._container(value, where) if leaf is None else leaf

    def _tensor(self, tensor: Tensor, where: str) -> Node:
        local = getattr(tensor, "_local_tensor", tensor).detach()
        if local.layout != torch.strided or local.is_quantized or local.device.type == "meta" or local.is_nested:
            return self._leave(f"a tensor with layout {local.layout} on {local.device.type}", where)
        key = self._keys.get(id(tensor))
        if key is None:
            key = self._keys[id(tensor)] = str(len(self._keys))
            self._alive.append(tensor)  # an id is a name only while its object lives
            self.tensors[key] = torch.view_as_real(local.resolve_conj()) if local.is_complex() else local
        facts = {"device": str(local.device), "requires_grad": tensor.requires_grad and tensor.is_leaf}
        return ["complex" if local.is_complex() else "tensor", key, facts]

    def _container(self, value: Any, where: str) -> Node:
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        if isinstance(value, Mapping):
            pairs = [[self.write(k, where), self.write(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return ["dict", pairs] if type(value) is dict else ["mapping", kind, pairs]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["named", kind, [self.write(v, f"{where}.{f}") for f, v in zip(value._fields, value, strict=True)]]
        if isinstance(value, (list, tuple, set, frozenset)):
            return [_sequence(value), [self.write(v, f"{where}[{n}]") for n, v in enumerate(value)]]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
            return ["dataclass", kind, [[name, self.write(getattr(value, name), f"{where}.{name}")] for name in names]]
        return self._leave(kind, where)

    def _leave(self, kind: str, where: str) -> Node:
        self.left_out.append(f"{where or 'value'}: {kind}")
        return ["left_out", kind]


def _sequence(value: Any) -> str:
    return next(kind.__name__ for kind in (list, tuple, frozenset, set) if isinstance(value, kind))


def _leaf(value: Any) -> Node:
    """The node of what holds no other values; None for the rest."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return ["numpy", value.dtype.str, list(value.shape), data]
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return ["scalar", value.dtype.str, base64.b64encode(value.tobytes()).decode()]
    if isinstance(value, torch.Size):
        return ["size", list(value)]
    if isinstance(value, (torch.dtype, torch.device)):
        return [type(value).__name__, str(value).removeprefix("torch.")]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", base64.b64encode(bytes(value)).decode()]
    if isinstance(value, complex):
        return ["complex_number", value.real, value.imag]
    if isinstance(value, slice):
        return ["slice", value.start, value.stop, value.step]
    if isinstance(value, range):
        return ["range", value.start, value.stop, value.step]
    return None


class Reader:
    """Turns what a Writer wrote back into values. `device=None` puts each tensor where it was, if that exists."""

    def __init__(self, tensors: Mapping[str, Tensor], device: str | torch.device | None = None) -> None:
        self._tensors = tensors
        self._device = device
        self._made: dict[str, Tensor] = {}

    def read(self, node: Node) -> Any:
        """The value; `LeftOut` where it was not saved, a mapping or list in the place of a class that is not loaded."""
        if not isinstance(node, list):
            return node
        kind, *rest = node
        return getattr(self, f"_read_{kind}")(*rest)

    def _read_tensor(self, key: str, facts: dict[str, Any]) -> Tensor:
        if key not in self._made:
            tensor = self._tensors[key].to(self._place(facts["device"]))
            self._made[key] = tensor.clone().requires_grad_(facts["requires_grad"])
        return self._made[key]

    def _read_complex(self, key: str, facts: dict[str, Any]) -> Tensor:
        if key not in self._made:
            tensor = torch.view_as_complex(self._tensors[key].clone()).to(self._place(facts["device"]))
            self._made[key] = tensor.requires_grad_(facts["requires_grad"])
        return self._made[key]

    def _place(self, device: str) -> str | torch.device:
        if self._device is not None:
            return self._device
        kind = torch.device(device).type
        return device if kind == "cpu" or _there(kind) else "cpu"

    def _read_float(self, text: str) -> float:
        return float(text)

    def _read_list(self, items: list[Node]) -> list[Any]:
        return [self.read(item) for item in items]

    def _read_tuple(self, items: list[Node]) -> tuple[Any, ...]:
        return tuple(self._read_list(items))

    def _read_set(self, items: list[Node]) -> set[Any]:
        return set(self._read_list(items))

    def _read_frozenset(self, items: list[Node]) -> frozenset[Any]:
        return frozenset(self._read_list(items))

    def _read_dict(self, pairs: list[list[Node]]) -> dict[Any, Any]:
        return {self.read(key): self.read(value) for key, value in pairs}

    def _read_mapping(self, kind: str, pairs: list[list[Node]]) -> Any:
        return _built(kind, self._read_dict(pairs), (self._read_dict(pairs),))

    def _read_named(self, kind: str, items: list[Node]) -> Any:
        values = self._read_list(items)
        return _built(kind, tuple(values), tuple(values))

    def _read_dataclass(self, kind: str, pairs: list[list[Node]]) -> Any:
        values = self._read_dict(pairs)
        cls = _class(kind)
        if cls is None:
            return values
        made = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def _read_numpy(self, dtype: str, shape: list[int], data: str) -> Any:
        return np.frombuffer(base64.b64decode(data), dtype=np.dtype(dtype)).reshape(shape).copy()

    def _read_scalar(self, dtype: str, data: str) -> Any:
        return np.frombuffer(base64.b64decode(data), dtype=np.dtype(dtype))[0]

    def _read_size(self, sizes: list[int]) -> torch.Size:
        return torch.Size(sizes)

    def _read_dtype(self, name: str) -> Any:
        return getattr(torch, name)

    def _read_device(self, name: str) -> torch.device:
        return torch.device(name)

    def _read_bytes(self, text: str) -> bytes:
        return base64.b64decode(text)

    def _read_complex_number(self, real: float, imaginary: float) -> complex:
        return complex(real, imaginary)

    def _read_slice(self, *parts: Any) -> slice:
        return slice(*parts)

    def _read_range(self, *parts: Any) -> range:
        return range(*parts)

    def _read_left_out(self, kind: str) -> LeftOut:
        return LeftOut(kind)


def _there(kind: str) -> bool:
    """Whether this machine has a device of this kind."""
    return bool(getattr(getattr(torch, kind, None), "is_available", lambda: False)())


def _class(kind: str) -> Any:
    """The class `module:Name` if its module is loaded; None otherwise."""
    module, _, name = kind.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def _built(kind: str, otherwise: Any, args: tuple[Any, ...]) -> Any:
    cls = _class(kind)
    try:
        return otherwise if cls is None else cls(*args)
    except Exception:  # a class with another constructor: its contents are what the batch needs
        return otherwise
