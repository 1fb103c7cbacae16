"""A Python function need not be opened where nothing that a policy intercepts can be inside; its code says what can.

What a function may call is over-estimated by name: every global and attribute that its code mentions, every operator,
and what the Python functions of those names mention in turn. A name too many costs a few microseconds per call.
"""

from __future__ import annotations

import dis
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MappingProxyType

from mixprec._autocast._functions import python_functions

__all__ = ["reach"]

_OPERATORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "+": ("add",),
        "-": ("sub", "rsub"),
        "*": ("mul",),
        "/": ("div", "reciprocal", "mul"),
        "//": ("floor_divide",),
        "%": ("remainder",),
        "**": ("pow",),
        "@": ("matmul",),
    }
)
_OPCODES: Mapping[str, str] = MappingProxyType(  # Python 3.10; later ones have BINARY_OP with the symbol
    {
        "BINARY_ADD": "+",
        "BINARY_SUBTRACT": "-",
        "BINARY_MULTIPLY": "*",
        "BINARY_TRUE_DIVIDE": "/",
        "BINARY_FLOOR_DIVIDE": "//",
        "BINARY_MODULO": "%",
        "BINARY_POWER": "**",
        "BINARY_MATRIX_MULTIPLY": "@",
    }
)


@functools.lru_cache(maxsize=4096)
def reach(function: FunctionType) -> frozenset[str]:
    """The names of everything that a call of `function` may call, itself or through Python functions of PyTorch."""
    found: set[str] = set()
    waiting = [function]
    seen: set[FunctionType] = set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        names = _mentioned(current.__code__)
        found |= names
        waiting += [f for name in names for f in _called(name)]
        waiting += [g for name in names if isinstance(g := current.__globals__.get(name), FunctionType)]
        waiting += [c.cell_contents for c in current.__closure__ or () if isinstance(c.cell_contents, FunctionType)]
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def _mentioned(code: CodeType) -> frozenset[str]:
    return frozenset(_names(code))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for instruction in dis.get_instructions(code):
        symbol = _OPCODES.get(instruction.opname, instruction.argrepr if instruction.opname == "BINARY_OP" else "")
        yield from _OPERATORS.get(symbol.rstrip("="), ())
        if instruction.opname == "UNARY_NEGATIVE":
            yield "neg"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _called(name: str) -> tuple[FunctionType, ...]:
    return _python_functions_by_name().get(name, ())


@functools.lru_cache(maxsize=1)
def _python_functions_by_name() -> Mapping[str, tuple[FunctionType, ...]]:
    named: dict[str, list[FunctionType]] = defaultdict(list)
    for function in python_functions():
        named[function.__name__].append(function)
    return MappingProxyType({name: tuple(functions) for name, functions in named.items()})
