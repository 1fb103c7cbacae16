"""Every way to call an op in Python leads to one op name, so a policy need not know how a model spells it.

What a `TorchFunctionMode` sees is a function object: a builtin of `torch`, `torch.Tensor` or `torch._C._nn`, an
operator, an aten overload, or a Python function such as `F.softmax`. This module groups them by op.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

import torch

from mixprec._policy import op_of

__all__ = ["aten_functions", "foreign_functions", "functions_by_op", "python_functions"]

Function = Callable[..., Any]

_OPERATORS = {
    "matmul": operator.matmul,
    "pow": operator.pow,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "neg": operator.neg,
    "abs": operator.abs,
}
"""What torch.compile calls the dunder methods."""


def _namespaces() -> Iterator[tuple[str, Any]]:
    """(the prefix that `op_of` knows, the namespace) for the builtins of PyTorch's Python bindings."""
    yield "aten::", torch._C._VariableFunctions
    yield "torch.Tensor.", torch.Tensor
    yield "aten::", torch._C._nn
    for name in ("_linalg", "_fft", "_special"):
        yield "aten::", getattr(torch._C, name)


@functools.lru_cache(maxsize=1)
def functions_by_op() -> Mapping[str, tuple[Function, ...]]:
    """Op -> the builtins and operators that call it, and the thin Python wrappers of one builtin."""
    found: dict[str, set[Any]] = defaultdict(set)
    for prefix, namespace in _namespaces():
        for name in dir(namespace):
            function = getattr(namespace, name)
            op = op_of(prefix + name) if callable(function) else None
            if op is not None and (not isinstance(function, FunctionType) or _wrapped_builtin(function) is not None):
                found[op].add(function)
    for op, function in _OPERATORS.items():
        found[op].add(function)
    return MappingProxyType({op: tuple(functions) for op, functions in found.items()})


@functools.lru_cache(maxsize=1)
def python_functions() -> Mapping[FunctionType, str | None]:
    """Every overridable Python function of PyTorch -> its op, None where it has none (`F.relu_`, `Tensor.split`)."""
    spelled = torch.overrides.get_testing_overrides()
    return MappingProxyType(
        {
            function: op_of(torch.overrides.resolve_name(function) or "")
            for function in spelled
            if isinstance(function, FunctionType) and _wrapped_builtin(function) is None
        }
    )


@functools.lru_cache(maxsize=1024)
def aten_functions(op: str) -> tuple[Function, ...]:
    """`torch.ops.aten.OP` and its overloads, without in-place and `out=` forms; empty where aten has no such op."""
    name, _, overload = op.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    return () if packet is None else _with_overloads(packet, overload)


def foreign_functions(op: str) -> tuple[Function, ...]:
    """The packet and overloads of `library::op`. Empty while that library has not registered it."""
    library, _, name = op.partition("::")
    packet = getattr(getattr(torch.ops, library), name, None)
    return () if packet is None else _with_overloads(packet, "")


def _with_overloads(packet: Any, only: str) -> tuple[Function, ...]:
    overloads = [getattr(packet, name) for name in packet.overloads() if not only or name == only]
    outward = [o for o in overloads if not o._schema.is_mutable]
    return (packet, *outward) if outward and not only else tuple(outward)


def _wrapped_builtin(function: FunctionType) -> Function | None:
    """The builtin that `function` only wraps, as `Tensor.__pow__` does; None for every other function."""
    inner = getattr(function, "__wrapped__", None)
    return inner if inner is not None and not isinstance(inner, FunctionType) else None
