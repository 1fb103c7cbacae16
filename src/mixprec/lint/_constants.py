"""A constant is what every run of the script gives the same value; what a run may choose stays open."""

from __future__ import annotations

import ast
import enum
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["DTYPES", "UNKNOWN", "Dtype", "Unknown", "evaluate"]


class Unknown(enum.Enum):
    """The one value that is no value: left open until the run."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false; compare with `is UNKNOWN` first")


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True)
class Dtype:
    """A torch dtype as a constant; `name` is the proper one (`torch.half` is `float16`)."""

    name: str


DTYPES: dict[str, str] = {
    "bfloat16": "bfloat16",
    "double": "float64",
    "float": "float32",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "half": "float16",
}
"""`torch.NAME` -> the dtype's proper name."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Sub: operator.sub,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.NotEq: operator.ne,
    ast.NotIn: lambda a, b: a not in b,
}
_HUGE = 10_000  # an exponent beyond this is nobody's constant and would cost real time


def evaluate(node: ast.expr, lookup: Callable[[ast.expr], Any]) -> Any:
    """The value of `node`, or UNKNOWN; `lookup` answers for names, attributes and calls."""
    try:
        return _evaluate(node, lookup)
    except (ArithmeticError, TypeError, ValueError, KeyError, IndexError, RecursionError):
        return UNKNOWN


def _evaluate(node: ast.expr, lookup: Callable[[ast.expr], Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
        return lookup(node)
    if isinstance(node, (ast.Tuple, ast.List)):
        return _all([_evaluate(item, lookup) for item in node.elts], tuple)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _all([_evaluate(node.operand, lookup)], lambda v: _UNARY[type(node.op)](v[0]))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _binary(node, lookup)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = [_evaluate(node.left, lookup), _evaluate(node.comparators[0], lookup)]
        return _all(sides, lambda v: _COMPARE[type(node.ops[0])](v[0], v[1]))
    if isinstance(node, ast.BoolOp):
        return _boolean(node, lookup)
    if isinstance(node, ast.IfExp):
        test = _evaluate(node.test, lookup)
        return UNKNOWN if test is UNKNOWN else _evaluate(node.body if test else node.orelse, lookup)
    return UNKNOWN


def _all(values: list[Any], combine: Callable[[list[Any]], Any]) -> Any:
    return UNKNOWN if any(value is UNKNOWN for value in values) else combine(values)


def _binary(node: ast.BinOp, lookup: Callable[[ast.expr], Any]) -> Any:
    left, right = _evaluate(node.left, lookup), _evaluate(node.right, lookup)
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    numeric = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if not numeric and not (isinstance(node.op, ast.Add) and type(left) is type(right)):
        return UNKNOWN
    if isinstance(node.op, ast.Pow) and (abs(right) > _HUGE or abs(left) > 1e18):
        return UNKNOWN
    return _BINARY[type(node.op)](left, right)


def _boolean(node: ast.BoolOp, lookup: Callable[[ast.expr], Any]) -> Any:
    """`and` and `or` are decided by one deciding side even where another is open; what they give is open then."""
    decides = isinstance(node.op, ast.Or)
    open_sides = False
    value: Any = not decides
    for side in node.values:
        value = _evaluate(side, lookup)
        if value is UNKNOWN:
            open_sides = True
        elif bool(value) is decides:
            return value if not open_sides or isinstance(value, bool) else UNKNOWN
    return UNKNOWN if open_sides else value
