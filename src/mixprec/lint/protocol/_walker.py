"""Walks through statements: forks at tests that are open, enters contexts, and steps over what cannot matter.

A walk that grows beyond its budget ends with `Overrun`, and nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mixprec.lint._names import AUTOCASTS
from mixprec.lint.protocol._conditions import Atom
from mixprec.lint.protocol._facts import facts, last_name
from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import NONE, Path
from mixprec.lint.protocol._raising import Raising, raising
from mixprec.lint.protocol._taint import short
from mixprec.lint.protocol._values import (
    Class,
    Context,
    Function,
    Instance,
    Known,
    Opaque,
    Optimizer,
    Region,
    Scaler,
    Value,
)

if TYPE_CHECKING:
    from mixprec.lint._view import FileView
from mixprec.lint.protocol._loops import Looping

__all__ = ["Overrun", "Walker"]

MOST_PATHS = 96
MOST_STEPS = 12_000
_CHANGES = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.withitem)


class Overrun(Exception):  # noqa: N818  # not an error: the walk gives up
    """There are more paths than can be walked."""


class Walker(Looping):
    """Walks one file from one root."""

    def __init__(self, view: FileView, machine: Machine) -> None:
        super().__init__(view, machine)
        self.steps = 0
        self._names_in: dict[ast.AST, list[str]] = {}
        self._statements: dict[type[ast.stmt], Callable[[Any, list[Path]], list[Path]]] = {
            ast.AnnAssign: self._ann_assign,
            ast.Assign: self._assign,
            ast.AsyncFor: self._for,
            ast.AsyncWith: self._with,
            ast.AugAssign: self._aug_assign,
            ast.Break: lambda node, paths: self._leave("break", paths),
            ast.ClassDef: self._class,
            ast.Continue: lambda node, paths: self._leave("continue", paths),
            ast.Expr: self._expr,
            ast.For: self._for,
            ast.FunctionDef: self._def,
            ast.AsyncFunctionDef: self._def,
            ast.If: self._branch,
            ast.Raise: lambda node, paths: self._leave("raise", paths),
            ast.Return: self._return,
            ast.Try: self._try,
            ast.While: self._while,
            ast.With: self._with,
        }

    def block(self, body: Sequence[ast.stmt], paths: list[Path]) -> list[Path]:
        """`body` walked by all `paths`; those that have left it keep their `exit`."""
        left: list[Path] = []
        for stmt in body:
            left += [path for path in paths if path.exit is not None]
            paths = [path for path in paths if path.exit is None]
            if not paths:
                break
            paths = self.statement(stmt, paths)
        return left + paths

    def statement(self, stmt: ast.stmt, paths: list[Path]) -> list[Path]:
        """One statement."""
        self.steps += len(paths)
        if self.steps > MOST_STEPS or len(paths) > MOST_PATHS:
            raise Overrun
        walk = self._statements.get(type(stmt))
        return paths if walk is None else walk(stmt, paths)

    def _matters(self, node: ast.AST, path: Path) -> bool:
        known = self.facts(path)
        return known.is_hot(node) or node in known.exits

    def _leave(self, how: str, paths: list[Path]) -> list[Path]:
        for path in paths:
            path.exit = how
        return paths

    def _def(self, node: ast.FunctionDef | ast.AsyncFunctionDef, paths: list[Path]) -> list[Path]:
        for path in paths:
            path.env[(path.chain[0], node.name)] = Function(node, self.file(path), path.chain)
        return paths

    def _class(self, node: ast.ClassDef, paths: list[Path]) -> list[Path]:
        for path in paths:
            path.env[(path.chain[0], node.name)] = Class(node, self.file(path), path.chain)
        return paths

    def _expr(self, node: ast.Expr, paths: list[Path]) -> list[Path]:
        path = paths[0]
        if self.facts(path).is_hot(node):
            return [one for one, _ in self.evaluated(node.value, paths)]
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr.endswith("_") and isinstance(call.func.value, ast.Name):
                self._forget([call.func.value.id], node, paths)
            if self.facts(path).keeps_scaled:
                return [one for one, _ in self.evaluated(node.value, paths)]
        elif self.facts(path).keeps_scaled:
            return [one for one, _ in self.evaluated(node.value, paths)]
        return paths

    def _assign(self, node: ast.Assign, paths: list[Path]) -> list[Path]:
        out = []
        for path, value in self.evaluated(node.value, paths):
            for target in node.targets:
                self.bind(target, value, path)
            out.append(path)
        return out

    def _ann_assign(self, node: ast.AnnAssign, paths: list[Path]) -> list[Path]:
        if node.value is None:
            return paths
        out = []
        for path, value in self.evaluated(node.value, paths):
            self.bind(node.target, value, path)
            out.append(path)
        return out

    def _aug_assign(self, node: ast.AugAssign, paths: list[Path]) -> list[Path]:
        out = []
        for path, value in self.evaluated(node.value, paths):
            if last_name(node.target) == "grad" and "scale" in self.text(node, path).lower():
                self.machine.escape(path, list(path.optimizers))
            old = self.value(node.target, path)
            if isinstance(node.op, ast.Add) and self.opaque(old).mark is None:
                self.sink(value, node, path)
            self.bind(node.target, self.operate(old, node.op, value, node, path), path)
            out.append(path)
        return out

    def _return(self, node: ast.Return, paths: list[Path]) -> list[Path]:
        if node.value is None:
            return self._leave("return", paths)
        out = []
        for path, value in self.evaluated(node.value, paths):
            path.result, path.exit = value, "return"
            out.append(path)
        return out

    def _try(self, node: ast.Try, paths: list[Path]) -> list[Path]:
        """The way without an exception, and those on which a `raise` of the project's own leads to a handler."""
        left: list[Path] = []
        handled: list[Path] = []
        for stmt in node.body:
            left += [path for path in paths if path.exit is not None]
            paths = [path for path in paths if path.exit is None]
            if not paths:
                break
            found = raising(stmt, node.handlers, self.facts(paths[0])) if self.facts(paths[0]).is_hot(node) else None
            if found is not None:
                paths, raised = self._raised(found, paths)
                handled += self.block(found[2].body, raised)
            paths = self.statement(stmt, paths)
        out = self.block(node.finalbody, [*left, *self.block(node.orelse, paths)])
        return self.join([*out, *self._finally(node, handled)]) if handled else out

    def _raised(self, found: Raising, paths: list[Path]) -> tuple[list[Path], list[Path]]:
        """The paths that go on, and those on which the exception is raised."""
        place, name, _ = found
        on: list[Path] = []
        raised: list[Path] = []
        for path in paths:
            key = f"raises{id(place)}{self.place(path)}"
            text = f"{self.text(place.func if isinstance(place, ast.Call) else place, path)} raises {name}"
            atom = Atom(short(key), text, True, node=place, where=self.machine.where, loops=path.loops)
            for truth, one in self.forks(atom, place, path):
                (raised if truth else on).append(one)
        return on, raised

    def _finally(self, node: ast.Try, paths: list[Path]) -> list[Path]:
        """What comes at the end of a `try` comes before what a handler leaves with."""
        out: list[Path] = []
        for path in paths:
            ended, path.exit = path.exit, None
            for one in self.block(node.finalbody, [path]):
                one.exit = one.exit or ended
                out.append(one)
        return out

    def _branch(self, node: ast.If, paths: list[Path]) -> list[Path]:
        if not self._matters(node, paths[0]):
            return self._step_over(node, paths)
        taken: list[Path] = []
        skipped: list[Path] = []
        for path in self._tested(node.test, paths):
            for truth, one in self.forks(self.condition(node.test, path), node, path):
                one.expanded = {}
                (taken if truth else skipped).append(one)
        return self.join([*self.block(node.body, taken), *self.block(node.orelse, skipped)])

    def _tested(self, test: ast.expr, paths: list[Path]) -> list[Path]:
        for inner in self._splitting(test, paths[0]) if self.facts(paths[0]).is_hot(test) else ():
            paths = [out for path in paths for out in self._split(inner, path)]
        return paths

    def _step_over(self, node: ast.stmt, paths: list[Path]) -> list[Path]:
        """A statement in which nothing happens: what it assigns is unknown afterwards."""
        self._forget(self._assigned(node), node, paths)
        return paths

    def _assigned(self, node: ast.AST) -> list[str]:
        if node not in self._names_in:
            self._names_in[node] = sorted(_assigned_names(node))
        return self._names_in[node]

    def _forget(self, names: Iterable[str], node: ast.AST, paths: Iterable[Path]) -> None:
        for path in paths:
            for name in names:
                place = (path.chain[0], name)
                old = path.env.get(place)
                if isinstance(old, (Scaler, Optimizer, Region, Instance, Function)):
                    continue
                tainted = isinstance(old, Opaque) and (old.mark is not None or old.unsure)
                region = old.region if isinstance(old, Opaque) else None
                key = f"{name}.{getattr(node, 'lineno', 0)}{self.place(path)}"
                path.env[place] = Opaque(
                    key, bool(path.loops), unsure=tainted, region=region or self.recorded_region(path)
                )

    def _with(self, node: ast.With | ast.AsyncWith, paths: list[Path]) -> list[Path]:
        opened = [(path, path.contexts) for path in paths]
        out: list[Path] = []
        for path, before in opened:
            current = [path]
            for item in node.items:
                current = self._open(item, node, current)
            for one in self.block(node.body, current):
                one.contexts = before
                out += self._closed(node, one)
        return self.join(out)

    def _entered(self, expr: ast.expr, path: Path, value: Value) -> list[tuple[Path, Value]]:
        """What `with expr as …` binds, after `__enter__` of an own context."""
        if not self.facts(path).is_hot(expr) or not isinstance(value, (Instance, Opaque)):
            return [(path, value)]
        path.heap[(f"with{id(expr)}", "")] = value
        method = self.member(value, "__enter__", path) if isinstance(value, Instance) else None
        if not isinstance(method, Function) or not method.view.memo(facts).is_hot(method.node):
            return [(path, value)]
        result = path.result
        out = [(one, one.result) for one in self.run(method, [], {}, expr, path)]
        for one, _ in out:
            one.result = result
        return out

    def _closed(self, node: ast.With | ast.AsyncWith, path: Path) -> list[Path]:
        """`path` behind a `with`: what leaving own contexts does is done, or may have been."""
        paths = [path]
        for item in reversed(node.items):
            known = self.facts(path)
            if not known.is_hot(item.context_expr) or item.context_expr in known.switches:
                continue
            paths = [out for one in paths for out in self._left(item.context_expr, one)]
        return paths

    def _left(self, expr: ast.expr, path: Path) -> list[Path]:
        """`path` after `__exit__` of what `expr` made."""
        value, ended, result = path.heap.pop((f"with{id(expr)}", ""), None), path.exit, path.result
        if not isinstance(value, (Instance, Opaque)):
            return [path]
        method = self.member(value, "__exit__", path) if isinstance(value, Instance) else None
        if not isinstance(method, Function):
            self.machine.escape(path, list(path.optimizers))
            return [path]
        path.exit = None
        out = self.run(method, [NONE, NONE, NONE], {}, expr, path)
        for one in out:
            one.exit, one.result = ended, result
        return out

    def _open(self, item: ast.withitem, node: ast.AST, paths: list[Path]) -> list[Path]:
        out = []
        made = self.evaluated(item.context_expr, paths)
        for path, value in (pair for one in made for pair in self._entered(item.context_expr, *one)):
            if isinstance(value, Known) and value.name in AUTOCASTS:
                value = Opaque(value.name)
            if isinstance(value, Region):
                path.contexts = (*path.contexts, value)
            elif isinstance(value, Context) and value.kind != "nothing":
                path.contexts = (
                    *path.contexts,
                    value if value.kind != "join" else replace(value, node=item.context_expr),
                )
            if item.optional_vars is not None:
                unsure = last_name(item.context_expr) in ("scale_loss",)
                taken = replace(self.opaque(value), unsure=True) if unsure else value
                self.bind(item.optional_vars, taken, path)
            out.append(path)
        return out


def _assigned_names(node: ast.AST) -> Iterable[str]:
    for inside in ast.walk(node):
        if isinstance(inside, _CHANGES):
            targets: list[ast.expr] = []
            if isinstance(inside, ast.Assign):
                targets = inside.targets
            elif isinstance(inside, ast.withitem):
                targets = [inside.optional_vars] if inside.optional_vars is not None else []
            else:
                targets = [inside.target]
            for target in targets:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
