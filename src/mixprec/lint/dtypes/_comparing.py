"""Whether a value is true, and whether two are equal, one is in the other, or neither can be said."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from mixprec.lint._constants import Dtype
from mixprec.lint.dtypes._values import (
    NONE,
    UNKNOWN,
    Autocast,
    Class,
    Const,
    Function,
    Instance,
    Items,
    Known,
    Optimizer,
    Scaler,
    Tensor,
    Value,
    Wrapped,
)

__all__ = ["compared", "truth_of"]

_TRUTHS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: a is b or a == b,
    ast.IsNot: lambda a, b: not (a is b or a == b),
}


def truth_of(value: Value) -> bool | None:
    """Whether `value` is true; None where that is open."""
    if isinstance(value, Const):
        return None if isinstance(value.value, Dtype) else bool(value.value)
    if isinstance(value, (Instance, Optimizer, Scaler, Autocast, Function, Class, Known, Wrapped)):
        return True
    if isinstance(value, Items) and value.items is not None:
        return bool(value.items)
    return None


def compared(operator: ast.cmpop, first: Value, second: Value) -> Value:
    if isinstance(first, Items) or isinstance(second, Items):
        return _contains(operator, first, second)
    if isinstance(operator, (ast.Is, ast.IsNot)) and NONE in (first, second):
        other = second if first == NONE else first
        known = {True: True, False: False}.get(other == NONE) if isinstance(other, _NOT_NONE) or other == NONE else None
        return UNKNOWN if known is None else Const(known is isinstance(operator, ast.Is))
    if isinstance(first, Const) and isinstance(second, Const):
        try:
            return Const(_TRUTHS[type(operator)](first.value, second.value))
        except (TypeError, ValueError):
            return UNKNOWN
    return UNKNOWN


_NOT_NONE = (Tensor, Instance, Optimizer, Scaler, Autocast, Function, Class, Wrapped, Const)


def _contains(operator: ast.cmpop, first: Value, second: Value) -> Value:
    """`x in (a, b)` of constants."""
    if not isinstance(operator, (ast.In, ast.NotIn)) or not isinstance(second, Items) or second.items is None:
        return UNKNOWN
    if not isinstance(first, Const) or not all(isinstance(item, Const) for item in second.items):
        return UNKNOWN
    return Const((first in second.items) is isinstance(operator, ast.In))
