"""The value of a statement: calls and choices in it split the path first, then it is evaluated and bound.

An expression in which nothing can happen is not evaluated; only what it is made of is looked at.
"""

from __future__ import annotations

import abc
import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from mixprec.lint._constants import Dtype
from mixprec.lint.protocol._calls import Calls
from mixprec.lint.protocol._conditions import Formula, decide, suppose
from mixprec.lint.protocol._facts import facts, last_name
from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._taint import combined, without_graph
from mixprec.lint.protocol._values import (
    Const,
    Context,
    Items,
    Opaque,
    Optimizer,
    Partial,
    Region,
    Scaler,
    Table,
    Value,
)

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["Binding", "Comprehension"]

Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_FACTORIES = frozenset({"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "zeros"})
_SEEN_OTHERWISE = frozenset(
    {"abs", "argmax", "bfloat16", "clone", "contiguous", "cos", "cpu", "cuda", "detach", "double", "flatten", "float"}
    | {"half", "int", "long", "mean", "permute", "pow", "prod", "reshape", "sin", "squeeze", "sum", "t", "to"}
    | {"transpose", "unsqueeze", "view"}
)
"""Methods of a tensor that bring no other tensor in."""
_OUT_OF_GRAPH = frozenset(
    {"FloatTensor", "as_tensor", "data", "detach", "from_numpy", "item", "numpy", "tensor", "tolist"}
)


class Binding(Calls):
    """Evaluates, forks and binds."""

    def __init__(self, view: FileView, machine: Machine) -> None:
        super().__init__(view, machine)
        self.tested = frozenset(view.memo(facts).tested)
        self._calls_in: dict[ast.AST, list[ast.expr]] = {}
        self._refs: dict[ast.AST, list[ast.expr]] = {}

    def evaluated(self, node: ast.expr, paths: Iterable[Path]) -> list[tuple[Path, Value]]:
        """`node` on every path, after the calls and choices in it that may split the path."""
        current = list(paths)
        if not current:
            return []
        if not self.facts(current[0]).is_hot(node):
            return [pair for path in current for pair in self._light(node, path)]
        for inner in self._splitting(node, current[0]):
            current = [out for path in current for out in self._split(inner, path)]
        pairs = []
        for path in current:
            value = self.value(node, path)
            path.expanded = {}
            pairs.append((path, value))
        return pairs

    def _split(self, node: ast.expr, path: Path) -> list[Path]:
        if isinstance(node, ast.IfExp):
            return self._choose(node, path)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return self.comprehend(node, path)
        return self.expand(node, path)  # type: ignore[arg-type]  # _splitting yields calls, choices and comprehensions

    @abc.abstractmethod
    def comprehend(self, node: Comprehension, path: Path) -> list[Path]:
        """A comprehension walked as the loop that it is; its value is left in `expanded`."""

    def _choose(self, node: ast.IfExp, path: Path) -> list[Path]:
        out = []
        for truth, one in self.forks(self.condition(node.test, path), node, path):
            one.expanded[node] = self.value(node.body if truth else node.orelse, one)
            out.append(one)
        return out

    def _splitting(self, node: ast.expr, path: Path) -> list[ast.expr]:
        if node not in self._calls_in:
            self._calls_in[node] = list(_splitting(node, self.facts(path).is_hot))
        return self._calls_in[node]

    def _light(self, node: ast.expr, path: Path) -> list[tuple[Path, Value]]:
        """An expression in which nothing can happen; only what it is made of is looked at."""
        if isinstance(node, ast.IfExp):
            return self._light_choice(node, path)
        if not isinstance(node, (ast.Call, ast.Await)):
            value = self.value(node, path)
            path.expanded = {}
            return [(path, value)]
        refs = [self.value(ref, path) for ref in self._references(node)]
        if any(map(_wants_care, refs)) or _cuts(node):
            value = self.value(node, path)
            path.expanded = {}
            return [(path, value)]
        key = f"{self.text(node, path)}({','.join(ref.key for ref in refs)}){self.place(path)}"
        value = combined(key, [r for r in refs if not (isinstance(r, Opaque) and r.outside)], bool(path.loops))
        value = replace(value, outside=False, region=value.region or self.recorded_region(path))
        return [(path, replace(value, data=value.cut is None and self._is_data(node, path)))]

    def _is_data(self, node: ast.expr, path: Path) -> bool:
        """Whether a call surely gives a tensor without a graph: one made by torch, or the same seen another way."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = self.file(path).dotted(node.func) or ""
            if name.startswith("torch."):
                given = {keyword.arg for keyword in node.keywords}
                return name[6:] in _FACTORIES and "requires_grad" not in given
            if node.func.attr not in _SEEN_OTHERWISE:
                return False
            node = node.func.value
            while isinstance(node, ast.Subscript):
                node = node.value
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        value = self.value(node, path)
        return isinstance(value, Opaque) and value.data

    def _light_choice(self, node: ast.IfExp, path: Path) -> list[tuple[Path, Value]]:
        body, orelse = self.value(node.body, path), self.value(node.orelse, path)
        if not self._worth_a_fork(node, body, path) and not self._worth_a_fork(node, orelse, path):
            value = self.value(node, path)
            path.expanded = {}
            return [(path, value)]
        return [
            (one, body if truth else orelse) for truth, one in self.forks(self.condition(node.test, path), node, path)
        ]

    def _worth_a_fork(self, node: ast.IfExp, value: Value, path: Path) -> bool:
        """Whether it matters which side of a choice was taken."""
        if isinstance(value, Opaque):
            return not value.plain
        if isinstance(value, Const) and not isinstance(value.value, Dtype):
            if not isinstance(value.value, (bool, str, type(None))):
                return False
            parent = self.file(path).parent(node)
            targets = parent.targets if isinstance(parent, ast.Assign) else ()
            return any(last_name(target) in self.tested for target in targets)
        return isinstance(value, (Const, Scaler, Optimizer, Region, Context, Partial))

    def _references(self, node: ast.expr) -> list[ast.expr]:
        if node not in self._refs:
            self._refs[node] = list(_references(node))
        return self._refs[node]

    def forks(self, formula: Formula, node: ast.AST, path: Path) -> list[tuple[bool, Path]]:
        """`path` once per way in which `formula` can be decided."""
        known = decide(formula, path.literals)
        if known is not None:
            return [(known, path)]
        decision = hash((id(node), path.loops))
        out = []
        for truth in (True, False):
            for literals in suppose(formula, truth, path.literals, decision):
                one = path.fork()
                one.literals = literals
                out.append((truth, one))
        return out

    def bind(self, target: ast.expr, value: Value, path: Path) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            path.env[(path.chain[0], target.id)] = value
        elif isinstance(target, ast.Attribute):
            self._bind_attribute(target, value, path)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for place, item in enumerate(target.elts):
                self.bind(item, self._unpacked(value, place, path), path)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, Opaque(f"*{value.key}"), path)
        elif isinstance(target, ast.Subscript):
            base, index = self.value(target.value, path), self.value(target.slice, path)
            if isinstance(base, Table) and isinstance(index, Const):
                table = dict(base.items) | {index.value: value}
                self.bind(target.value, Table(tuple(table.items())), path)
            else:
                path.heap[(base.key, f"[{index.key}]")] = value
                if isinstance(base, Opaque) and (base.cut is not None or base.data):
                    self.bind(target.value, replace(base, key=f"{base.key}[=]", cut=None, data=False), path)

    def _bind_attribute(self, target: ast.Attribute, value: Value, path: Path) -> None:
        if target.attr == "grad":
            if isinstance(value, Const) and value.value is None:
                self.machine.clear(path, list(path.gradients), target)
            else:
                self.machine.overwrite(path)
            return
        path.heap[(self.value(target.value, path).key, target.attr)] = value

    def _unpacked(self, value: Value, index: int, path: Path) -> Value:
        if isinstance(value, Items) and index < len(value.items):
            return value.items[index]
        return without_graph(combined(f"{value.key}[{index}]", (value,), bool(path.loops)), (value,))


def _splitting(node: ast.AST, is_hot: Callable[[ast.AST], bool]) -> Iterable[ast.expr]:
    """Hot calls, choices and comprehensions in the order of evaluation; nothing from inside lambdas."""
    if isinstance(node, ast.Lambda) or not is_hot(node):
        return
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        yield node
        return
    if isinstance(node, ast.IfExp):
        yield from _splitting(node.test, is_hot)
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _splitting(child, is_hot)
    if isinstance(node, ast.Call):
        yield node


def _references(node: ast.AST) -> Iterable[ast.expr]:
    """The outermost names and attribute chains in `node`, apart from the names of what is called."""
    if isinstance(node, (ast.Lambda, ast.Constant)):
        return
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.Attribute):
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield node
        else:
            yield from _references(inner)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield from _references(node.func.value)
        for child in (*node.args, *(k.value for k in node.keywords)):
            yield from _references(child)
    else:
        for inside in ast.iter_child_nodes(node):
            yield from _references(inside)


def _wants_care(value: Value) -> bool:
    """Whether what is made of `value` must be worked out, and not only known to be made of it."""
    if isinstance(value, Opaque):
        return bool(value.mark or value.scale or value.gradient or value.cut or value.unsure)
    return isinstance(value, (Items, Table))


def _cuts(node: ast.AST) -> bool:
    """Whether a chain of calls takes its value, or one that it is given, out of the graph: `loss.detach().mean()`."""
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute) and node.attr in _OUT_OF_GRAPH:
            return True
        if isinstance(node, ast.Call) and any(_cuts(arg) for arg in node.args):
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return False
