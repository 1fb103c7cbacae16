"""What operators and collections make of values; nothing happens here."""

from __future__ import annotations

import abc
import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mixprec.lint._constants import Dtype
from mixprec.lint._defaults import default
from mixprec.lint.protocol._conditions import Formula, Truth
from mixprec.lint.protocol._facts import last_name
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._values import (
    Const,
    Items,
    Logic,
    Opaque,
    Table,
    Value,
)

if TYPE_CHECKING:
    pass
from mixprec.lint.protocol._lookup import Lookup
from mixprec.lint.protocol._taint import combined, without_graph

__all__ = ["MOST_ITEMS", "Arithmetic"]

MOST_ITEMS = 4
"""Collections with more known items than this are taken for collections of unknown length."""


class Arithmetic(Lookup):
    """Combines values."""

    def _binary(self, node: ast.BinOp, path: Path) -> Value:
        return self.operate(self.value(node.left, path), node.op, self.value(node.right, path), node, path)

    def operate(self, left: Value, op: ast.operator, right: Value, node: ast.AST, path: Path) -> Value:
        """`left op right`."""
        if isinstance(left, Const) and isinstance(right, Const):
            folded = _fold(left.value, op, right.value)
            if folded is not None:
                return folded
        a, b = self.opaque(left), self.opaque(right)
        result = without_graph(combined(f"({left.key}{type(op).__name__}{right.key})", (left, right)), (left, right))
        if isinstance(op, ast.Mod):
            return replace(result, modulo=True)
        if isinstance(op, ast.Div):
            return self._divided(a, b, result, node, path)
        if isinstance(op, ast.Mult):
            return self._multiplied(a, b, result, left, right, node, path)
        return result

    def _divided(self, a: Opaque, b: Opaque, result: Opaque, node: ast.AST, path: Path) -> Opaque:
        if b.scale is not None:
            if a.mark is not None:
                self._undo(a, b, node, path)
                return replace(result, mark=None, unsure=False)
            return replace(result, scale=b.scale, inverse=not b.inverse, gradient=False)
        return replace(result, divisors=result.divisors | {b.key}, mark=a.mark, cut=a.cut, outside=a.outside)

    def _multiplied(
        self, a: Opaque, b: Opaque, result: Opaque, left: Value, right: Value, node: ast.AST, path: Path
    ) -> Opaque:
        for one, other in ((a, b), (b, a)):
            if one.scale is not None:
                if other.mark is not None and one.inverse:
                    self._undo(other, one, node, path)
                    return replace(result, mark=None, unsure=False)
                return replace(result, unsure=True)
        by_hand = any(
            isinstance(v, Const) and isinstance(v.value, (int, float)) and abs(v.value) >= 128 for v in (left, right)
        )
        by_hand = by_hand or any("scale" in value.key.lower() for value in (a, b) if value.mark is None)
        return replace(result, unsure=result.unsure or by_hand)

    def _undo(self, scaled: Opaque, scale: Opaque, node: ast.AST, path: Path) -> None:
        """A scaled value is divided by a scale: it must be the one that it was multiplied by."""
        if scaled.mark is not None and scale.scale is not None:
            self.machine.undo(path, scaled.mark, scale.scale, node)

    def _unary(self, node: ast.UnaryOp, path: Path) -> Value:
        if isinstance(node.op, ast.Not):
            return self._logic(node, path)
        operand = self.value(node.operand, path)
        if isinstance(operand, Const) and isinstance(node.op, ast.USub) and isinstance(operand.value, (int, float)):
            return Const(-operand.value)
        return combined(f"{type(node.op).__name__}({operand.key})", (operand,))

    def _items(self, node: ast.Tuple | ast.List, path: Path) -> Value:
        if any(isinstance(item, ast.Starred) for item in node.elts) or len(node.elts) > 12:
            return Opaque(f"?{id(node)}{self.place(path)}")
        if isinstance(node, ast.List) and (not node.elts or self._grows(node, path)):
            return Opaque(f"?{id(node)}{self.place(path)}")
        return Items(tuple(self.value(item, path) for item in node.elts))

    def _grows(self, node: ast.expr, path: Path) -> bool:
        """Whether the collection that `node` makes is added to later."""
        parent = self.file(path).parent(node)
        targets = parent.targets if isinstance(parent, ast.Assign) else ()
        return any(last_name(target) in self.facts(path).grown for target in targets)

    def _dict(self, node: ast.Dict, path: Path) -> Value:
        items: list[tuple[Any, Value]] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or len(items) > 12:
                return Opaque(f"?{id(node)}{self.place(path)}")
            items.append((key.value, self.value(value, path)))
        return (
            Table(tuple(items)) if items and not self._grows(node, path) else Opaque(f"?{id(node)}{self.place(path)}")
        )

    def _subscript(self, node: ast.Subscript, path: Path) -> Value:
        base, index = self.value(node.value, path), self.value(node.slice, path)
        if isinstance(base, Items) and isinstance(index, Const) and isinstance(index.value, int):
            inside = -len(base.items) <= index.value < len(base.items)
            return base.items[index.value] if inside else Opaque(f"{base.key}[{index.key}]")
        if isinstance(base, Table) and isinstance(index, Const):
            for key, item in base.items:
                if key == index.value:
                    return item
        stored = path.heap.get((base.key, f"[{index.key}]"))
        if stored is not None:
            return stored
        found = without_graph(combined(f"{base.key}[{index.key}]", (base,)), (base,))
        return replace(found, half=isinstance(base, Table) and self._gives_half(base, node.slice, path))

    def _gives_half(self, table: Table, key: ast.expr, path: Path) -> bool:
        """Whether a table of dtypes gives float16 for an open `key` by default, or wherever it gives 16 bits."""
        if not all(isinstance(item, Const) and isinstance(item.value, (Dtype, type(None))) for _, item in table.items):
            return False
        dtypes = {name: item.value.name for name, item in table.items if isinstance(item, Const) and item.value}
        short_ones = {name for name in dtypes.values() if name in ("bfloat16", "float16")}
        return short_ones == {"float16"} or dtypes.get(default(self.file(path), key)) == "float16"

    def _text_of(self, node: ast.JoinedStr, path: Path) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.sink(self.value(part.value, path), part, path)
        return Opaque(f"text{id(node)}")

    def sink(self, value: Value, node: ast.AST, path: Path) -> None:
        """`value` is shown or kept as a number: it must not carry a loss scale."""
        if isinstance(value, Opaque) and value.mark is not None:
            self.machine.shown(path, value.mark, node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, path: Path) -> Value:
        body = node.value if isinstance(node, ast.DictComp) else node.elt
        results: list[Value] = []
        for index in range(self._rounds(node.generators[0], path)):
            for generator in node.generators:
                iterable = self.value(generator.iter, path)
                self.bind(generator.target, self.item(generator.iter, generator.target, iterable, index, path), path)
            path.expanded = {n: v for n, v in path.expanded.items() if not _within(n, body)}
            results.append(self.value(body, path))
        keys = ",".join(result.key for result in results)
        return combined(f"each{id(node)}({keys}){self.place(path)}", results, bool(path.loops))

    def _rounds(self, generator: ast.comprehension, path: Path) -> int:
        """How many items of a comprehension are looked at: all, where they are few and known."""
        iterable = self.value(generator.iter, path)
        return min(len(iterable.items), MOST_ITEMS) if isinstance(iterable, (Items, Table)) else 2

    def element(self, iterable: Value, index: int, node: ast.expr, path: Path) -> Value:
        """Item `index` of `iterable`, as far as it is known."""
        if isinstance(iterable, Items):
            return iterable.items[index] if index < len(iterable.items) else Opaque(f"{iterable.key}[{index}]")
        if isinstance(iterable, Table):
            return (
                Const(iterable.items[index][0]) if index < len(iterable.items) else Opaque(f"{iterable.key}[{index}]")
            )
        return combined(f"{iterable.key}[#{index}]", (iterable,), True)

    def _logic(self, node: ast.expr, path: Path) -> Value:
        """The truth of a test as a value."""
        formula = self.condition(node, path)
        return Const(formula.value) if isinstance(formula, Truth) else Logic(formula)

    @abc.abstractmethod
    def condition(self, node: ast.expr, path: Path) -> Formula:
        """The test `node` as a formula."""

    @abc.abstractmethod
    def item(self, source: ast.expr, target: ast.expr, iterable: Value, index: int, path: Path) -> Value:
        """Item `index` of what `source` is worth, for `target`."""

    @abc.abstractmethod
    def bind(self, target: ast.expr, value: Value, path: Path) -> None:
        """`target = value`."""


def _within(node: ast.AST, outer: ast.AST) -> bool:
    """Whether `node` stands in the source range of `outer`, which is an expression."""
    first = (getattr(outer, "lineno", 0), getattr(outer, "col_offset", 0))
    last = (getattr(outer, "end_lineno", 0), getattr(outer, "end_col_offset", 0))
    return first <= (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)) < last


def _fold(left: Any, op: ast.operator, right: Any) -> Const | None:
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        return None
    try:
        if isinstance(op, ast.Add):
            return Const(left + right)
        if isinstance(op, ast.Sub):
            return Const(left - right)
        if isinstance(op, ast.Mult):
            return Const(left * right)
        if isinstance(op, ast.Div):
            return Const(left / right)
        if isinstance(op, ast.FloorDiv):
            return Const(left // right)
        if isinstance(op, ast.Mod):
            return Const(left % right)
        if isinstance(op, ast.Pow) and abs(right) < 1000 and abs(left) < 1e6:
            return Const(left**right)
    except (ArithmeticError, ValueError):
        return None
    return None
