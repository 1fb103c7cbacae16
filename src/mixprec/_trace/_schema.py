"""What an op's schema says, read once per op: its operands by name, what it writes, constants, view or cast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mixprec._trace._nested import tensors_in
from mixprec.records import TensorStats

__all__ = ["Schema", "schema_of"]

Scalar = float | int | bool | str | None

_UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "resize_", "empty_permuted")
_OVERWRITING = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_"}
    | {"cauchy_", "geometric_", "set_", "resize_", "_foreach_zero_", "_foreach_copy_", "eye_", "arange_"}
)
"""Ops in place that write their first operand without reading it: what it held before is nobody's fault."""

_COLLECTIVES = ("c10d", "_c10d_functional")
"""Namespaces of ops that return before the ranks are done: what their buffers hold then is no op's result."""

_CASTS = frozenset({"_to_copy", "to", "copy_", "convert_element_type"})
_TEXT = 200


class Schema:
    """One op overload. **Cost** read once; then a walk over the arguments per call."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func = func
        self.name = str(func)
        self.packet = str(schema.name).rpartition("::")[2]
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        collective = str(schema.name).startswith(_COLLECTIVES)
        self.uninitialised = self.packet in _UNINITIALISED or (collective and self.packet != "wait_tensor")
        self.names: tuple[str, ...] = tuple(str(argument.name) for argument in schema.arguments)
        writes = {str(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
        self.writes = frozenset(writes)
        self.ignored = frozenset(
            str(a.name)
            for n, a in enumerate(schema.arguments)
            if a.is_out or collective or (n == 0 and _reads_no_numbers(self.packet))
        )
        self.view = not writes and any(r.alias_info is not None for r in schema.returns)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """(name in the schema, value) of every argument that was passed."""
        yield from zip(self.names, args, strict=False)
        yield from kwargs.items()

    def operands(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Tensor, bool]]:
        """(name, tensor, whether the op reads it) of every tensor among the arguments; lists as `name[0]`, …."""
        found: list[tuple[str, Tensor, bool]] = []
        for name, value in self.arguments(args, kwargs):
            read = name not in self.ignored
            if isinstance(value, Tensor):
                found.append((name, value, read))
            elif isinstance(value, (list, tuple)):
                found += [(f"{name}[{n}]", one, read) for n, one in enumerate(value) if isinstance(one, Tensor)]
        return found

    def scalars(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[str, Scalar], ...]:
        """(name, value) of the arguments that are no tensors; what JSON does not know is given as text."""
        return tuple(
            (name, _plain(value))
            for name, value in self.arguments(args, kwargs)
            if value is not None and not _holds_tensors(value)
        )

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> list[Tensor]:
        """The tensors that the op returned, or that it wrote in place where it returned none."""
        returned = list(tensors_in(result))
        if returned or not self.writes:
            return returned
        return [t for name, value in self.arguments(args, kwargs) if name in self.writes for t in tensors_in(value)]

    def device(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The device type that the op runs on: its first tensor's, or the one that it was told."""
        for _, value in self.arguments(args, kwargs):
            for tensor in tensors_in(value):
                return tensor.device.type
        return torch.device(kwargs.get("device") or "cpu").type

    def casts(self, inputs: tuple[TensorStats, ...], outputs: tuple[TensorStats, ...]) -> bool:
        """Whether the op did nothing but change a floating-point dtype."""
        if self.packet not in _CASTS or not inputs or not outputs:
            return False
        return "float" in inputs[-1].dtype and "float" in outputs[0].dtype and inputs[-1].dtype != outputs[0].dtype


def _reads_no_numbers(packet: str) -> bool:
    """Whether the op takes no more than shape and dtype from its first operand."""
    return packet in _OVERWRITING or packet.endswith("_like") or packet.startswith("new_")


_schemas: dict[Any, Schema | None] = {}


def schema_of(func: Any) -> Schema | None:
    """The schema of an op overload; None of what has none (higher-order operators)."""
    try:
        return _schemas[func]
    except KeyError:
        schema = _schemas[func] = Schema(func) if hasattr(func, "_schema") else None
        return schema


def _plain(value: Any) -> Scalar:
    """`value` as JSON has it; Inf, NaN and everything else as text."""
    if isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)[:_TEXT]


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, (list, tuple)) and any(_holds_tensors(v) for v in value))
