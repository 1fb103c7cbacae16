"""What an expression is worth for the protocol: names, attributes, arithmetic and tests.

Everything that a call can do is in `_calls`; here nothing happens, values are only looked up and combined.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mixprec.lint._constants import DTYPES, Dtype
from mixprec.lint.protocol._conditions import FALSE, TRUE, Atom, Both, Either, Formula, Not, Truth, decide
from mixprec.lint.protocol._facts import Facts, facts, last_name
from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._values import (
    Class,
    Const,
    Function,
    Instance,
    Items,
    Known,
    Logic,
    Mark,
    Opaque,
    Scaler,
    Table,
    Value,
)

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["MOST_ITEMS", "Expressions", "combined", "is_number", "negated", "short"]

_WINDOW = re.compile(
    r"%|accum|micro|sync|is_last|last_batch|last_micro|update_(grad|now|param|weight)|(do|is|should|need)_?(step|update)"
)
_ABOUT_SCALE = re.compile(
    r"get_scale|found_inf|isfinite|isnan|isinf|overflow|skip|_scale\b|scale_(before|after)|(before|after|old|prev)\w*_scale|applied|has_inf"
)
_LONGEST = 160
MOST_ITEMS = 4
"""Collections with more known items than this are taken for collections of unknown length."""
_SAME = {
    "contiguous",
    "cpu",
    "cuda",
    "data",
    "double",
    "float",
    "half",
    "mean",
    "requires_grad_",
    "reshape",
    "squeeze",
    "sum",
    "to",
    "type",
    "view",
}
"""Methods whose result is the same tensor as far as its scale and its graph go."""


def short(key: str) -> str:
    """`key`, or its digest where it has grown long."""
    return key if len(key) <= _LONGEST else key[:40] + hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()


def is_number(value: Value) -> bool:
    """Whether `value` is a number that is known, and no truth value."""
    return isinstance(value, Const) and isinstance(value.value, (int, float)) and not isinstance(value.value, bool)


def combined(key: str, values: Iterable[Value], volatile: bool = False) -> Opaque:
    """Something computed from `values`: their taints together."""
    result = Opaque(short(key), volatile)
    opaque = [value for value in values if isinstance(value, Opaque)]
    if not opaque:
        return result
    marks = [value.mark for value in opaque if value.mark is not None]
    regions = [value.region for value in opaque if value.region is not None]
    return replace(
        result,
        volatile=volatile or any(value.volatile for value in opaque),
        mark=marks[0] if marks else None,
        unsure=any(value.unsure for value in opaque),
        number=any(value.number for value in opaque),
        region=regions[0] if regions else None,
        divisors=frozenset().union(*(value.divisors for value in opaque)),
        cut=opaque[0].cut if all(value.cut for value in opaque) else None,
        gradient=any(value.gradient for value in opaque),
        outside=all(value.outside for value in opaque),
        bases=frozenset().union(*(value.bases for value in opaque)),
    )


class Expressions:
    """Evaluates expressions on a path. `view` is the file whose findings are wanted."""

    def __init__(self, view: FileView, machine: Machine) -> None:
        self.view = view
        self.machine = machine
        self.views: dict[int, FileView] = {0: view}
        self.globals: dict[tuple[int, str], Value] = {}
        self.looking_up: set[tuple[int, str]] = set()
        self._texts: dict[ast.AST, str] = {}
        self._refs: dict[ast.AST, list[ast.expr]] = {}
        self._table: dict[type[ast.AST], Callable[[Any, Path], Value]] = {
            ast.Attribute: self._attribute,
            ast.Await: lambda node, path: self.value(node.value, path),
            ast.BinOp: self._binary,
            ast.BoolOp: self._logic,
            ast.Call: self._call,
            ast.Compare: self._logic,
            ast.Constant: lambda node, path: Const(node.value),
            ast.Dict: self._dict,
            ast.DictComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.IfExp: self._if,
            ast.JoinedStr: self._text_of,
            ast.Lambda: lambda node, path: Function(node, self.file(path), path.chain),
            ast.List: self._items,
            ast.ListComp: self._comprehension,
            ast.Name: self._name,
            ast.NamedExpr: self._named,
            ast.SetComp: self._comprehension,
            ast.Starred: lambda node, path: self.value(node.value, path),
            ast.Subscript: self._subscript,
            ast.Tuple: self._items,
            ast.UnaryOp: self._unary,
        }

    def file(self, path: Path) -> FileView:
        """The file whose code runs on `path`."""
        return self.views[path.chain[-1]]

    def facts(self, path: Path) -> Facts:
        """The facts of the file whose code runs on `path`."""
        return self.file(path).memo(facts)

    def place(self, path: Path) -> str:
        """Which call and iteration runs: what is made there is another thing each time."""
        where = self.machine.where
        return f"{path.token}^{hash(where) % 100_003}" if where else path.token

    def text(self, node: ast.AST, path: Path) -> str:
        """The source of `node` on one line."""
        if node not in self._texts:
            self._texts[node] = " ".join(self.file(path).text(node).split())
        return self._texts[node]

    def value(self, node: ast.expr, path: Path) -> Value:
        """What `node` is worth on `path`."""
        known = path.expanded.get(node)
        if known is not None:
            return known
        evaluate = self._table.get(type(node))
        return Opaque(f"?{id(node)}{self.place(path)}", bool(path.loops)) if evaluate is None else evaluate(node, path)

    def opaque(self, value: Value) -> Opaque:
        """`value` seen as something whose taints count."""
        return value if isinstance(value, Opaque) else Opaque(value.key)

    # --- names

    def _name(self, node: ast.Name, path: Path) -> Value:
        for frame in path.chain:
            value = path.env.get((frame, node.id))
            if value is not None:
                return self._counted(value, node.id, path)
        return self._counted(self.global_value(path.chain[-1], node.id), node.id, path)

    def _counted(self, value: Value, name: str, path: Path) -> Value:
        """A number that is counted up is another one in each iteration."""
        counted = isinstance(value, Const) and path.loops and name in self.facts(path).counters
        if not counted or not is_number(value):
            return value
        key = f"{name}{self.place(path)}"
        return Opaque(key, volatile=True, bases=frozenset((key,)))

    def global_value(self, frame: int, name: str) -> Value:
        """What `name` is at module level, where the module itself has not been walked."""
        place = (frame, name)
        if place in self.globals:
            return self.globals[place]
        if place in self.looking_up:
            return Opaque(f"g:{name}")
        self.looking_up.add(place)
        try:
            self.globals[place] = self._global(frame, name)
        finally:
            self.looking_up.discard(place)
        return self.globals[place]

    def _global(self, frame: int, name: str) -> Value:
        view = self.views[frame]
        known = view.memo(facts)
        defined = [node for node in known.functions.get(name, ()) if view.parent(node) is view.tree]
        if defined:
            return Function(defined[-1], view, (frame,))
        if name in known.classes:
            return Class(known.classes[name], view, (frame,))
        if name in view.imports:
            return self._imported(view, view.imports[name])
        assigned = view.assignments(view.tree).get(name, ())
        if len(assigned) == 1 and assigned[0] is not None:
            return self.quiet(assigned[0], Path(chain=(frame,)))
        return Known(name) if not assigned and hasattr(builtins, name) else Opaque(f"g:{name}")

    def _imported(self, view: FileView, dotted: str) -> Value:
        if dotted.startswith("torch.") and dotted[6:] in DTYPES:
            return Const(Dtype(DTYPES[dotted[6:]]))
        found = self.elsewhere(view, dotted)
        return Known(dotted) if found is None else found

    def elsewhere(self, view: FileView, dotted: str) -> Value | None:
        """A function or class of another module of the project."""
        if not _FOLLOWED.search(dotted.rpartition(".")[2]):
            return None
        found = view.project.definition(dotted, view.path)
        if found is None:
            return None
        module, name = found
        if module.path == self.view.path:
            return None
        frame = next((number for number, known in self.views.items() if known is module), None)
        if frame is None:
            frame = -len(self.views)
            self.views[frame] = module
        value = self.global_value(frame, name)
        return value if isinstance(value, (Function, Class)) else None

    def quiet(self, node: ast.expr, path: Path) -> Value:
        """What `node` is worth, without anything happening."""
        machine, self.machine = self.machine, Machine(type(self.machine.ledger)())
        try:
            return self.value(node, path)
        finally:
            self.machine = machine

    def _named(self, node: ast.NamedExpr, path: Path) -> Value:
        value = self.value(node.value, path)
        path.env[(path.chain[0], node.target.id)] = value
        return value

    # --- attributes

    def _attribute(self, node: ast.Attribute, path: Path) -> Value:
        base = self.value(node.value, path)
        if isinstance(base, Known):
            dotted = f"{base.name}.{node.attr}"
            if base.name == "torch" and node.attr in DTYPES:
                return Const(Dtype(DTYPES[node.attr]))
            return self.elsewhere(self.file(path), dotted) or Known(dotted)
        stored = path.heap.get((base.key, node.attr))
        if stored is not None:
            return self._counted(stored, node.attr, path)
        if isinstance(base, Instance):
            return self.member(base, node.attr, path)
        if isinstance(base, Scaler):
            if node.attr in ("_scale", "_init_scale"):
                return Opaque(f"{base.key}.scale", True, scale=self.mark(path, base))
            return Opaque(f"{base.key}.{node.attr}", volatile=True)
        return self._attribute_of(self.opaque(base), node.attr, path)

    def _attribute_of(self, base: Opaque, attr: str, path: Path) -> Opaque:
        moving = path.loops and (attr in self.facts(path).counters or attr in _COUNTERS)
        key = short(f"{base.key}.{attr}{self.place(path) if moving else ''}")
        if attr in _SAME:
            return replace(base, key=key, cut="data" if attr == "data" and base.mark is None else base.cut)
        volatile = base.volatile or bool(moving)
        return Opaque(key, volatile, gradient=attr == "grad" or base.gradient, outside=base.outside)

    def mark(self, path: Path, scaler: Scaler) -> Mark:
        """The scale of `scaler` as it stands."""
        protocol = path.scalers.get(scaler.key)
        return Mark(scaler.key, 0 if protocol is None else protocol.version)

    def member(self, instance: Instance, attr: str, path: Path) -> Value:
        """An attribute or method of an object of the project, looked up in its class and the bases that are here."""
        for cls in self.bases(instance.cls):
            for node in cls.node.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == attr:
                    return Function(node, cls.view, cls.chain, instance)
        value = None if instance.made else self._assigned_member(instance, attr)
        if value is not None:
            path.heap[(instance.key, attr)] = value
            return value
        moving = path.loops and (attr in self.facts(path).counters or attr in _COUNTERS)
        return Opaque(f"{instance.key}.{attr}{self.place(path) if moving else ''}", volatile=bool(moving))

    def bases(self, cls: Class) -> list[Class]:
        """`cls` and its bases as far as they are in the project, in order of lookup."""
        found, queue = [cls], [*cls.node.bases]
        view = cls.view
        while queue and len(found) < 8:
            base = queue.pop(0)
            value = self.quiet(base, Path(chain=(cls.chain[-1],)))
            if isinstance(value, Class) and value not in found:
                found.append(value)
                view = value.view
                queue += value.node.bases if view is cls.view else []
        return found

    def _assigned_member(self, instance: Instance, attr: str) -> Value | None:
        """What the class's methods put into `self.attr`, where they all put the same."""
        found = [
            (value, cls, cls.view.function(value))
            for cls in self.bases(instance.cls)
            for value in cls.view.memo(facts).members.get(cls.node, {}).get(attr, ())
        ]
        if len(found) != 1:
            return None
        node_value, cls, function = found[0]
        place = (-1, f"{instance.key}.{attr}")
        if place in self.looking_up:
            return None
        self.looking_up.add(place)
        try:
            path = Path(chain=(cls.chain[-1],))
            frame = self.new_frame()
            path.chain = (frame, cls.chain[-1])
            self.bind_outside(function, path, instance)
            value = self.quiet(node_value, path)
            return None if isinstance(value, Const) and value.value is None else value
        finally:
            self.looking_up.discard(place)

    def new_frame(self) -> int:
        """A number that no other frame has."""
        raise NotImplementedError

    def bind_outside(self, function: ast.AST | None, path: Path, instance: Instance | None) -> None:
        """Bind the parameters of `function` to what only a caller knows."""
        raise NotImplementedError

    # --- arithmetic

    def _binary(self, node: ast.BinOp, path: Path) -> Value:
        return self.operate(self.value(node.left, path), node.op, self.value(node.right, path), node, path)

    def operate(self, left: Value, op: ast.operator, right: Value, node: ast.AST, path: Path) -> Value:
        """`left op right`."""
        if isinstance(left, Const) and isinstance(right, Const):
            folded = _fold(left.value, op, right.value)
            if folded is not None:
                return folded
        a, b = self.opaque(left), self.opaque(right)
        result = combined(f"({left.key}{type(op).__name__}{right.key})", (left, right))
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
        cut = None if (a.cut is None) != (b.cut is None) and not isinstance(left, Const) else result.cut
        return replace(result, unsure=result.unsure or by_hand, cut=cut)

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
        return stored if stored is not None else combined(f"{base.key}[{index.key}]", (base, index))

    def _if(self, node: ast.IfExp, path: Path) -> Value:
        truth = decide(self.condition(node.test, path), path.literals)
        if truth is not None:
            return self.value(node.body if truth else node.orelse, path)
        return combined(f"?{id(node)}{self.place(path)}", (self.value(node.body, path), self.value(node.orelse, path)))

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

    def item(self, source: ast.expr, target: ast.expr, iterable: Value, index: int, path: Path) -> Value:
        """Item `index` of what `source` is worth, for `target`."""
        raise NotImplementedError

    def element(self, iterable: Value, index: int, node: ast.expr, path: Path) -> Value:
        """Item `index` of `iterable`, as far as it is known."""
        if isinstance(iterable, Items):
            return iterable.items[index] if index < len(iterable.items) else Opaque(f"{iterable.key}[{index}]")
        if isinstance(iterable, Table):
            return (
                Const(iterable.items[index][0]) if index < len(iterable.items) else Opaque(f"{iterable.key}[{index}]")
            )
        return combined(f"{iterable.key}[#{index}]", (iterable,), True)

    def bind(self, target: ast.expr, value: Value, path: Path) -> None:
        """`target = value`."""
        raise NotImplementedError

    def _call(self, node: ast.Call, path: Path) -> Value:
        raise NotImplementedError

    # --- tests

    def _logic(self, node: ast.expr, path: Path) -> Value:
        formula = self.condition(node, path)
        return Const(formula.value) if isinstance(formula, Truth) else Logic(formula)

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
        )


def _within(node: ast.AST, outer: ast.AST) -> bool:
    """Whether `node` stands in the source range of `outer`, which is an expression."""
    first = (getattr(outer, "lineno", 0), getattr(outer, "col_offset", 0))
    last = (getattr(outer, "end_lineno", 0), getattr(outer, "end_col_offset", 0))
    return first <= (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)) < last


_ORDER: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Gt: ("Gt", False),
    ast.GtE: ("Lt", True),
    ast.Lt: ("Lt", False),
    ast.LtE: ("Gt", True),
}
_COUNTERS = frozenset({"cur_iter", "epoch", "global_step", "it", "iter", "iteration", "num_updates", "step"})
_FOLLOWED = re.compile(
    r"scal|optim|amp|autocast|train|step|backward|clip|grad|fit|epoch|loop|engine|update|precision", re.IGNORECASE
)


def negated(formula: Formula) -> Formula:
    """The contrary of `formula`."""
    if isinstance(formula, Truth):
        return Truth(not formula.value)
    return formula.inner if isinstance(formula, Not) else Not(formula)


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
