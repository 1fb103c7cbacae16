"""A Python function of PyTorch is opened, not cast: the ops inside it are what the policy speaks of.

`F.multi_head_attention_forward` and its like ask `has_torch_function(...)` first and, under a mode, hand themselves
to it. The mode is off inside its own handler, so calling the function there would hide its inner ops. Instead a copy
runs, equal but for its globals, in which that question is answered "no": the copy goes on to its body, and with the
mode on again everything that the body calls is seen. torch.compile traces the copy as any Python function.
"""

from __future__ import annotations

import dis
import functools
import inspect
from types import CellType, CodeType, FunctionType
from typing import Any

import torch

__all__ = ["opened"]

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@functools.lru_cache(maxsize=4096)
def opened(function: FunctionType) -> FunctionType | None:
    """The copy of `function` that runs its body under a mode; None where the function does not ask, and so has none.

    A function that only picks between others that ask (`F.max_pool2d`) is opened through them. A method that goes on
    to the builtin that it overrides (`Tensor.unflatten`, `Tensor.__pow__`) is left closed: the builtin, called under
    the mode, names the method again, and no other op is inside.
    Cost: once per function; copies share one dict of globals per module.
    """
    if "super" in function.__code__.co_names or not isinstance(inspect.unwrap(function), FunctionType):
        return None
    if _asks(function):
        return _copy(function, _answering(_Scope(function.__globals__)), function.__closure__)
    if any(isinstance(c.cell_contents, FunctionType) and _asks(c.cell_contents) for c in function.__closure__ or ()):
        return _copy(function, function.__globals__, tuple(map(_opened_cell, function.__closure__ or ())))
    return None


def _asks(function: FunctionType) -> bool:
    """Whether the answer can be changed: the question is a global of the function, no attribute of a module."""
    if not any(question in function.__code__.co_names for question in _QUESTIONS):
        return False
    instructions = dis.get_instructions(function)
    return any(i.opname == "LOAD_GLOBAL" and i.argval in _QUESTIONS for i in instructions)


def _opened_cell(cell: CellType) -> CellType:
    inner = cell.cell_contents
    return CellType(opened(inner)) if isinstance(inner, FunctionType) and _asks(inner) else cell


def _copy(function: FunctionType, scope: dict[str, Any], closure: tuple[CellType, ...] | None) -> FunctionType:
    copy = FunctionType(_traceable(function.__code__), scope, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    return copy


def _traceable(code: CodeType) -> CodeType:
    """`code`, under the name of this file where Dynamo skips functions for the name of theirs (torch 2.13)."""
    skipped = (torch.functional.__file__, torch._jit_internal.__file__)
    return code.replace(co_filename=__file__) if code.co_filename in skipped else code


class _Scope:
    """A module's globals as a key: compared by identity, because dicts have no hash."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def __hash__(self) -> int:
        return id(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Scope) and other.names is self.names


@functools.lru_cache(maxsize=256)
def _answering(scope: _Scope) -> dict[str, Any]:
    """A copy of the globals in which nothing has a torch function.

    A private function that asks hands its public caller to the mode (`_unique_impl` hands `unique`), so the caller
    would be opened for ever: private ones are opened along with it.
    """
    names = {**scope.names, **dict.fromkeys(_QUESTIONS, _no)}
    private = {n: f for n, f in names.items() if n.startswith("_") and isinstance(f, FunctionType) and _asks(f)}
    names.update({name: _copy(function, names, function.__closure__) for name, function in private.items()})
    return names


def _no(*_: object) -> bool:
    return False
