"""What a test says: a formula over the questions that only a run can answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mixprec.lint.protocol._conditions import FALSE, TRUE, Atom, Both, Either, Formula, Not, Truth, decide
from mixprec.lint.protocol._facts import last_name
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._values import (
    Const,
    Items,
    Known,
    Logic,
    Opaque,
    Table,
    Value,
)

if TYPE_CHECKING:
    pass
from mixprec.lint.protocol._arithmetic import Arithmetic
from mixprec.lint.protocol._taint import combined, short

__all__ = ["Tests", "negated"]

_WINDOW = re.compile(
    r"%|accum|micro|sync|is_last|last_batch|last_micro|update_(grad|now|param|weight)|(do|is|should|need)_?(step|update)"
)
_ABOUT_SCALE = re.compile(
    r"get_scale|found_inf|isfinite|isnan|isinf|overflow|skip|_scale\b|scale_(before|after)|(before|after|old|prev)\w*_scale|applied|has_inf"
)
_ORDER: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Gt: ("Gt", False),
    ast.GtE: ("Lt", True),
    ast.Lt: ("Lt", False),
    ast.LtE: ("Gt", True),
}


class Tests(Arithmetic):
    """Turns tests into formulas."""

    def condition(self, node: ast.expr, path: Path) -> Formula:
        """The test `node` as a formula; parts that do not depend on the run are decided."""
        if isinstance(node, ast.BoolOp):
            return self._junction(node, path)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negated(self.condition(node.operand, path))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compare(node, path)
        return self.truth(self.value(node, path), node, path)

    def _junction(self, node: ast.BoolOp, path: Path) -> Formula:
        conjunction = isinstance(node.op, ast.And)
        neutral, deciding = (TRUE, FALSE) if conjunction else (FALSE, TRUE)
        parts = [self.condition(part, path) for part in node.values]
        if deciding in parts:
            return deciding
        parts = [part for part in parts if part != neutral]
        if len(parts) <= 1:
            return parts[0] if parts else neutral
        text = self.text(node, path)
        return Both(tuple(parts), text) if conjunction else Either(tuple(parts), text)

    def _compare(self, node: ast.Compare, path: Path) -> Formula:
        op, right_node = node.ops[0], node.comparators[0]
        left, right = self.value(node.left, path), self.value(right_node, path)
        if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(right, Const) and right.value is None:
            none = self._is_none(left, node, path)
            return negated(none) if isinstance(op, ast.IsNot) else none
        if isinstance(left, Const) and isinstance(right, Const):
            decided = _compared(left.value, op, right.value)
            if decided is not None:
                return Truth(decided)
        if isinstance(node.left, ast.Name) and node.left.id == "__name__":
            return Truth(isinstance(op, ast.Eq))
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Items):
            parts = tuple(self._equal(left, item, node, path) for item in right.items)
            inside: Formula = Either(parts, self.text(node, path)) if len(parts) > 1 else parts[0] if parts else FALSE
            return negated(inside) if isinstance(op, ast.NotIn) else inside
        if isinstance(op, (ast.Eq, ast.Is)):
            return self._equal(left, right, node, path)
        if isinstance(op, (ast.NotEq, ast.IsNot)):
            return negated(self._equal(left, right, node, path))
        name, flipped = _ORDER.get(type(op), (type(op).__name__, False))
        atom = self._atom(f"{left.key}{name}{right.key}", node, (left, right), path, negative=flipped)
        return Not(atom) if flipped else atom

    def _equal(self, left: Value, right: Value, node: ast.AST, path: Path) -> Formula:
        if isinstance(left, Const) and isinstance(right, Const):
            return Truth(bool(left.value == right.value))
        if isinstance(left, Const):
            left, right = right, left
        if isinstance(left, Logic) and isinstance(right, Const) and isinstance(right.value, bool):
            return left.formula if right.value else negated(left.formula)
        negative = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.NotEq, ast.NotIn, ast.IsNot))
        atom = self._atom(f"{left.key}=={right.key}", node, (left, right), path, negative=negative)
        return replace(atom, equals=(left.key, right.key)) if isinstance(right, Const) else atom

    def _is_none(self, value: Value, node: ast.expr, path: Path) -> Formula:
        if isinstance(value, Const):
            return Truth(value.value is None)
        if not isinstance(value, Opaque):
            return FALSE
        positive = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.IsNot)
        return self._atom(f"none:{value.key}", node, (value,), path, negative=positive)

    def truth(self, value: Value, node: ast.expr, path: Path) -> Formula:
        """Whether `value` is true."""
        if isinstance(value, Const):
            return Truth(bool(value.value))
        if isinstance(value, Logic):
            return value.formula
        if isinstance(value, (Items, Table)):
            return Truth(bool(value.items))
        if isinstance(value, Known) and value.name == "typing.TYPE_CHECKING":
            return FALSE
        if not isinstance(value, (Opaque, Known)):
            return TRUE
        name = last_name(node)
        if isinstance(value, Opaque) and (self.facts(path).is_scaler(name) or self.facts(path).is_optimizer(name)):
            return Not(self._atom(f"none:{value.key}", node, (value,), path, negative=True))
        if isinstance(value, Opaque) and value.modulo:
            return Not(self._atom(f"{value.key}==0", node, (value,), path, negative=True))
        return self._atom(value.key, node, (value,), path)

    def _atom(self, key: str, node: ast.AST, values: Iterable[Value], path: Path, negative: bool = False) -> Atom:
        """An open test. `negative`: the atom is the contrary of what the text says."""
        text = self.text(node, path)
        known = list(values)
        volatile = any(isinstance(value, Opaque) and value.volatile for value in known)
        about_scale = any(isinstance(value, Opaque) and value.scale is not None for value in known)
        return Atom(
            short(key),
            f"not ({text})" if negative and not isinstance(node, ast.Name) else text,
            volatile,
            window=bool(_WINDOW.search(text)) or any(isinstance(v, Opaque) and v.modulo for v in known),
            about_scale=about_scale or bool(_ABOUT_SCALE.search(text)),
            bases=frozenset().union(*(value.bases for value in known if isinstance(value, Opaque))),
            node=node,
            where=self.machine.where,
            loops=path.loops,
        )

    def _if(self, node: ast.IfExp, path: Path) -> Value:
        truth = decide(self.condition(node.test, path), path.literals)
        if truth is not None:
            return self.value(node.body if truth else node.orelse, path)
        return combined(f"?{id(node)}{self.place(path)}", (self.value(node.body, path), self.value(node.orelse, path)))


def negated(formula: Formula) -> Formula:
    """The contrary of `formula`."""
    if isinstance(formula, Truth):
        return Truth(not formula.value)
    return formula.inner if isinstance(formula, Not) else Not(formula)


def _compared(left: Any, op: ast.cmpop, right: Any) -> bool | None:
    try:
        if isinstance(op, ast.Eq):
            return bool(left == right)
        if isinstance(op, ast.NotEq):
            return bool(left != right)
        if isinstance(op, ast.Lt):
            return bool(left < right)
        if isinstance(op, ast.LtE):
            return bool(left <= right)
        if isinstance(op, ast.Gt):
            return bool(left > right)
        if isinstance(op, ast.GtE):
            return bool(left >= right)
    except TypeError:
        return None
    return None
