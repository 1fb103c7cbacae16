"""A loop is walked twice: the second iteration shows what the first hides.

Few items that are known are walked one by one.
"""

from __future__ import annotations

import abc
import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from mixprec.lint.protocol._arithmetic import MOST_ITEMS
from mixprec.lint.protocol._binding import Comprehension
from mixprec.lint.protocol._facts import last_name
from mixprec.lint.protocol._path import Loops, Path
from mixprec.lint.protocol._taint import combined, is_number, short
from mixprec.lint.protocol._values import (
    Const,
    Items,
    Opaque,
    Table,
    Value,
)

if TYPE_CHECKING:
    pass
from mixprec.lint.protocol._functions import Functions

__all__ = ["Looping"]

K = TypeVar("K")
_LOADERS = re.compile(r"(loaders?|dataset|_dl|^dl|^data|_data)$", re.IGNORECASE)
ITERATIONS = 2
BEHIND = (0, 0)
"""Stands for the iterations of a loop that is over."""


class Looping(Functions):
    """Walks through loops."""

    def _for(self, node: ast.For | ast.AsyncFor, paths: list[Path]) -> list[Path]:
        if not self.facts(paths[0]).is_hot(node):
            return self._step_over(node, paths)
        out: list[Path] = []
        for path, iterable in self.evaluated(node.iter, paths):
            out += self._iterate(node, iterable, path)
        return self.block(node.orelse, self.join(out))

    def _iterate(self, node: ast.For | ast.AsyncFor, iterable: Value, path: Path) -> list[Path]:
        outside = path.loops
        current, finished = [path], []
        for index in range(self._count(iterable)):
            for one in current:
                self._enter(node, index, outside, one)
                self.bind(node.target, self.item(node.iter, node.target, iterable, index, one), one)
            current, broken = self._once(node.body, current)
            finished += broken
        return self._leave_loop(current or finished, outside)

    def comprehend(self, node: Comprehension, path: Path) -> list[Path]:
        """A comprehension walked as the loop that it is; its value is left in `expanded`."""
        expanded, result = path.expanded, path.result
        path.result = Opaque(f"each{id(node)}{self.place(path)}", bool(path.loops))
        out = self._generate(node, 0, [path])
        for one in out:
            one.expanded = {**expanded, node: one.result}
            one.result = result
        return out

    def _generate(self, node: Comprehension, level: int, paths: list[Path]) -> list[Path]:
        """The loops of a comprehension from `level` on; each path has the last item as its `result`."""
        if level == len(node.generators):
            return self._each(node, paths)
        generator, out = node.generators[level], []
        for path, iterable in self.evaluated(generator.iter, paths):
            outside, current = path.loops, [path]
            for index in range(self._count(iterable)):
                for one in current:
                    self._enter(generator, index, outside, one)
                    self.bind(generator.target, self.item(generator.iter, generator.target, iterable, index, one), one)
                taken, skipped = self._passing(generator, current)
                current = self.join([*self._generate(node, level + 1, taken), *skipped])
            out += self._leave_loop(current, outside)
        return out

    def _each(self, node: Comprehension, paths: list[Path]) -> list[Path]:
        out = []
        for path, value in self.evaluated(node.value if isinstance(node, ast.DictComp) else node.elt, paths):
            path.result = combined(f"each{id(node)}({value.key}){self.place(path)}", (value,), True)
            out.append(path)
        return out

    def _passing(self, generator: ast.comprehension, paths: list[Path]) -> tuple[list[Path], list[Path]]:
        """The paths that the tests of a comprehension let through, and the others."""
        skipped: list[Path] = []
        for test in generator.ifs:
            taken: list[Path] = []
            for path in self._tested(test, paths):
                for truth, one in self.forks(self.condition(test, path), test, path):
                    one.expanded = {}
                    (taken if truth else skipped).append(one)
            paths = taken
        return paths, skipped

    def _count(self, iterable: Value) -> int:
        """How many iterations are walked."""
        known = isinstance(iterable, (Items, Table)) and len(iterable.items) <= MOST_ITEMS
        return len(iterable.items) if known and isinstance(iterable, (Items, Table)) else ITERATIONS

    def _leave_loop(self, paths: list[Path], outside: Loops) -> list[Path]:
        """The paths behind the loop; what happened in it has happened in what is around it."""
        depth, behind = len(outside), (*outside, BEHIND)
        for path in paths:
            path.loops = outside
            for key, gradients in path.gradients.items():
                parts = frozenset(p if len(p.loops) <= depth else replace(p, loops=behind) for p in gradients.parts)
                path.gradients[key] = replace(gradients, parts=parts, dropped=frozenset())
            for key, protocol in path.scalers.items():
                stages = tuple(
                    (k, s if len(s.loops) <= depth else replace(s, loops=behind)) for k, s in protocol.stages
                )
                path.scalers[key] = replace(protocol, stages=stages)
        return self.join(paths)

    def item(self, source: ast.expr, target: ast.expr, iterable: Value, index: int, path: Path) -> Value:
        """Item `index`, seen through enumerate, zip and progress bars, so that equal collections give equal items."""
        name = last_name(source.func) if isinstance(source, ast.Call) else ""
        args = source.args if isinstance(source, ast.Call) else []
        if name == "enumerate" and args:
            number = _number(f"n{id(source)}{self.place(path)}")
            inner = target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) > 1 else target
            return Items((number, self.item(args[0], inner, self.quiet(args[0], path), index, path)))
        if name == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(args):
            pairs = zip(args, target.elts, strict=True)
            return Items(tuple(self.item(a, t, self.quiet(a, path), index, path) for a, t in pairs))
        if name == "range":
            first = self.quiet(args[0], path) if len(args) > 1 and index == 0 else None
            if isinstance(first, Const) and isinstance(first.value, int) and first.value > 1:
                return first
            return _number(f"n{id(source)}{self.place(path)}")
        if isinstance(iterable, (Items, Table)):
            return self.element(iterable, index, source, path)
        if self.facts(path).is_optimizer(last_name(target)):
            owners = ",".join(self.value(ref, path).key for ref in self._references(source))
            return Opaque(short(f"each {self.text(source, path)}({owners})[#{index}]"))
        one = combined(f"{iterable.key}[#{index}]{self.place(path)}", (iterable,), True)
        return replace(one, data=bool(_LOADERS.search(last_name(source))) and one.cut is None)

    def _while(self, node: ast.While, paths: list[Path]) -> list[Path]:
        if not self.facts(paths[0]).is_hot(node):
            return self._step_over(node, paths)
        out: list[Path] = []
        for path in paths:
            outside = path.loops
            current, finished = [path], []
            for index in range(ITERATIONS):
                for one in current:
                    self._enter(node, index, outside, one)
                current = self._tested(node.test, current) if current else []
                current, broken = self._once(node.body, current)
                finished += broken
            out += self._leave_loop(current or finished, outside)
        return self.block(node.orelse, self.join(out))

    def _enter(self, node: ast.AST, index: int, outside: Loops, path: Path) -> None:
        """Start iteration `index`: what the last one left behind is of an older time."""
        path.loops = (*outside, (id(node), index))
        path.expanded = {}
        depth = len(outside)
        path.log = tuple(entry for entry in path.log if len(entry.loops) <= depth)
        for key, protocol in path.scalers.items():
            if protocol.version:
                path.scalers[key] = replace(protocol, version=0)
        self._age(path.env)
        self._age(path.heap)
        changed = self._assigned(node)
        for (frame, name), value in path.env.items():
            if name in changed and is_number(value):
                path.env[(frame, name)] = _number(f"{name}{self.place(path)}")

    @staticmethod
    def _age(store: dict[K, Value]) -> None:
        """Scaled values and scales of the last iteration: how they relate to the scale of now is open."""
        for place, value in store.items():
            if isinstance(value, Opaque) and (value.mark is not None or value.scale is not None):
                store[place] = replace(value, mark=None, scale=None, unsure=True)

    def _once(self, body: Sequence[ast.stmt], paths: list[Path]) -> tuple[list[Path], list[Path]]:
        """One iteration: the paths that go on to the next, and those that have left the loop."""
        going, left = [], []
        for path in self.block(body, paths):
            if path.exit == "continue":
                path.exit = None
            if path.exit is None:
                going.append(path)
            elif path.exit == "break":
                path.exit = None
                left.append(path)
            elif path.exit == "return":
                left.append(path)
        return self.join(going), left

    @abc.abstractmethod
    def _step_over(self, node: ast.stmt, paths: list[Path]) -> list[Path]:
        """A statement in which nothing happens."""

    @abc.abstractmethod
    def _tested(self, test: ast.expr, paths: list[Path]) -> list[Path]:
        """The calls in a test carried out."""

    @abc.abstractmethod
    def _assigned(self, node: ast.AST) -> list[str]:
        """The names that a statement assigns."""


def _number(key: str) -> Opaque:
    """A number that is another one in each iteration."""
    return Opaque(key, volatile=True, bases=frozenset((key,)))
