"""Walks through statements: forks at tests that are open, walks loops twice, walks into the functions that are called.

What cannot matter is stepped over. A walk that grows beyond its budget ends with `Overrun`, and nothing is said.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mixprec.lint._constants import Dtype
from mixprec.lint._names import AUTOCASTS
from mixprec.lint.protocol._calls import Calls
from mixprec.lint.protocol._conditions import Formula, decide, suppose
from mixprec.lint.protocol._expressions import MOST_ITEMS, combined, is_number, short
from mixprec.lint.protocol._facts import facts, last_name
from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import NONE, Loops, Path, join
from mixprec.lint.protocol._values import (
    Class,
    Const,
    Context,
    Function,
    Instance,
    Items,
    Known,
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

__all__ = ["Overrun", "Walker"]

K = TypeVar("K")

_OUT_OF_GRAPH = frozenset(
    {"FloatTensor", "as_tensor", "data", "detach", "from_numpy", "item", "numpy", "tensor", "tolist"}
)

MOST_PATHS = 96
MOST_STEPS = 12_000
DEEPEST = 10
BEHIND = (0, 0)
"""Stands for the iterations of a loop that is over."""
MOST_WALKS = 12
ITERATIONS = 2
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CHANGES = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.withitem)


class Overrun(Exception):  # noqa: N818  # not an error: the walk gives up
    """There are more paths than can be walked."""


class Walker(Calls):
    """Walks one file from one root."""

    def __init__(self, view: FileView, machine: Machine) -> None:
        super().__init__(view, machine)
        self.steps = 0
        self.frames = 0
        self.entered: set[ast.AST] = set()
        self.stack: list[ast.AST] = []
        self.walks: Counter[ast.AST] = Counter()
        self.most_optimizers = 0
        self.tested = frozenset(view.memo(facts).tested)
        self._calls_in: dict[ast.AST, list[ast.expr]] = {}
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

    def join(self, paths: Iterable[Path]) -> list[Path]:
        """The paths with those made one that nothing tells apart."""
        every = list(paths)
        return every if len(every) < 2 else join(every, self.tested)

    # --- statements

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
        """The way without an exception."""
        return self.block(node.finalbody, self.block([*node.body, *node.orelse], paths))

    # --- values

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
        return self._choose(node, path) if isinstance(node, ast.IfExp) else self.expand(node, path)  # type: ignore[arg-type]  # _splitting yields calls and choices only

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
        return [(path, replace(value, outside=False, region=value.region or self.recorded_region(path)))]

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

    def _bind_attribute(self, target: ast.Attribute, value: Value, path: Path) -> None:
        if target.attr == "grad":
            if isinstance(value, Const) and value.value is None:
                self.machine.clear(path, list(path.gradients), target)
            else:
                self.machine.escape(path, list(path.optimizers))
            return
        path.heap[(self.value(target.value, path).key, target.attr)] = value

    def _unpacked(self, value: Value, index: int, path: Path) -> Value:
        if isinstance(value, Items) and index < len(value.items):
            return value.items[index]
        return combined(f"{value.key}[{index}]", (value,), bool(path.loops))

    # --- branches

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

    # --- loops

    def _for(self, node: ast.For | ast.AsyncFor, paths: list[Path]) -> list[Path]:
        if not self.facts(paths[0]).is_hot(node):
            return self._step_over(node, paths)
        out: list[Path] = []
        for path, iterable in self.evaluated(node.iter, paths):
            out += self._iterate(node, iterable, path)
        return self.block(node.orelse, self.join(out))

    def _iterate(self, node: ast.For | ast.AsyncFor, iterable: Value, path: Path) -> list[Path]:
        known = isinstance(iterable, (Items, Table)) and len(iterable.items) <= MOST_ITEMS
        count = len(iterable.items) if known and isinstance(iterable, (Items, Table)) else ITERATIONS
        outside = path.loops
        current, finished = [path], []
        for index in range(count):
            for one in current:
                self._enter(node, index, outside, one)
                self.bind(node.target, self.item(node.iter, node.target, iterable, index, one), one)
            current, broken = self._once(node.body, current)
            finished += broken
        return self._leave_loop(current or finished, outside)

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
            return _number(f"n{id(source)}{self.place(path)}")
        if isinstance(iterable, (Items, Table)):
            return self.element(iterable, index, source, path)
        if self.facts(path).is_optimizer(last_name(target)):
            owners = ",".join(self.value(ref, path).key for ref in self._references(source))
            return Opaque(short(f"each {self.text(source, path)}({owners})[#{index}]"))
        return combined(f"{iterable.key}[#{index}]{self.place(path)}", (iterable,), True)

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

    # --- contexts

    def _with(self, node: ast.With | ast.AsyncWith, paths: list[Path]) -> list[Path]:
        opened = [(path, path.contexts) for path in paths]
        out: list[Path] = []
        for path, before in opened:
            current = [path]
            for item in node.items:
                current = self._open(item, node, current)
            for one in self.block(node.body, current):
                one.contexts = before
                out.append(one)
        return self.join(out)

    def _open(self, item: ast.withitem, node: ast.AST, paths: list[Path]) -> list[Path]:
        out = []
        for path, value in self.evaluated(item.context_expr, paths):
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

    # --- functions

    def new_frame(self) -> int:
        """A number that no other frame has."""
        self.frames += 1
        return self.frames

    def run(
        self, function: Function, args: list[Value], kwargs: Mapping[str, Value], call: ast.AST, path: Path
    ) -> list[Path]:
        """Walk through `function`; each path that comes out has its `result`."""
        node = function.node
        self.walks[node] += 1
        out_of_reach = node in self.stack or len(self.stack) >= DEEPEST or self.walks[node] > MOST_WALKS
        if out_of_reach or node in function.view.memo(facts).generators:
            path.result = Opaque(f"?{id(call)}{self.place(path)}", bool(path.loops), unsure=True)
            return [path]
        known = function.view.memo(facts)
        self.entered.add(node)
        if isinstance(node, _DEFS) and not known.is_hot(node):
            key = f"{function.key}({','.join(a.key for a in (*args, *kwargs.values()))}){self.place(path)}"
            plain = combined(key, [*args, *kwargs.values()], bool(path.loops))
            path.result = replace(plain, outside=False, region=plain.region or self.recorded_region(path))
            return [path]
        return self._walk_into(function, args, kwargs, call, path)

    def _walk_into(
        self, function: Function, args: list[Value], kwargs: Mapping[str, Value], call: ast.AST, path: Path
    ) -> list[Path]:
        node = function.node
        before = path.chain, path.contexts, path.expanded, path.result
        frame = self.new_frame()
        path.chain = (frame, *function.chain)
        path.expanded = {}
        self._bind_arguments(function, frame, args, kwargs, path)
        self._decorate(function, path)
        where, site = self.machine.where, self.machine.site
        self.machine.where = (*where, id(call))
        if site is None and function.view is not self.view:
            self.machine.site = call
        self.stack.append(node)
        path.result = Const(None)
        try:
            if isinstance(node, ast.Lambda):
                out = []
                for one, value in self.evaluated(node.body, [path]):
                    one.result = value
                    out.append(one)
            else:
                out = [one for one in self.block(node.body, [path]) if one.exit in (None, "return")]
        finally:
            self.stack.pop()
            self.machine.where, self.machine.site = where, site
        for one in out:
            self._return_from(frame, before[0], before[1], before[2], one)
        return self.join(out)

    def _return_from(
        self,
        frame: int,
        chain: tuple[int, ...],
        contexts: tuple[Region | Context, ...],
        expanded: Mapping[ast.AST, Value],
        path: Path,
    ) -> None:
        path.exit = None
        path.chain, path.contexts, path.expanded = chain, contexts, dict(expanded)
        self.most_optimizers = max(self.most_optimizers, len(path.optimizers))
        path.env = {place: value for place, value in path.env.items() if place[0] != frame}
        self._collect(path)

    def _collect(self, path: Path) -> None:
        """Optimizers and scalers that were made in a function and went with it are forgotten."""
        if not any(one.made is not None for one in path.optimizers.values()):
            return
        alive: set[str] = set()
        for value in (*path.env.values(), *path.heap.values(), path.result, *path.expanded.values()):
            alive |= _keys(value)
        for key, optimizer in list(path.optimizers.items()):
            if optimizer.made is not None and key not in alive:
                del path.optimizers[key]
                path.gradients.pop(key, None)
        for key, scaler in list(path.known_scalers.items()):
            if scaler.made is not None and key not in alive:
                del path.known_scalers[key]
                path.scalers.pop(key, None)

    def _bind_arguments(
        self, function: Function, frame: int, args: list[Value], kwargs: Mapping[str, Value], path: Path
    ) -> None:
        spec = function.node.args
        names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        given = [function.bound, *args] if function.bound is not None and not _is_static(function.node) else list(args)
        bound: dict[str, Value] = {}
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        for name, default in defaults.items():
            bound[name] = self.quiet(default, Path(chain=(function.chain[-1],)))
        bound |= {name: value for name, value in zip(names, given, strict=False) if value is not None}
        every = {*names, *(arg.arg for arg in spec.kwonlyargs)}
        bound |= {name: value for name, value in kwargs.items() if name in every}
        for name in (*every, *(a.arg for a in (spec.vararg, spec.kwarg) if a is not None)):
            path.env[(frame, name)] = bound.get(name, Opaque(f"p:{id(function.node)}:{name}", outside=True))

    def begin(self, root: ast.FunctionDef | ast.AsyncFunctionDef, path: Path, instance: Instance | None) -> None:
        """Start `root` anew: what an earlier call of it kept to itself is gone."""
        frame = path.chain[0]
        path.env = {place: value for place, value in path.env.items() if place[0] != frame}
        self.most_optimizers = max(self.most_optimizers, len(path.optimizers))
        path.result = NONE
        self._collect(path)
        self.bind_outside(root, path, instance)

    def bind_outside(self, function: ast.AST | None, path: Path, instance: Instance | None) -> None:
        """Bind the parameters of `function` to what only a caller knows."""
        if not isinstance(function, (*_DEFS, ast.Lambda)):
            return
        spec = function.args
        every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        for number, arg in enumerate(arg for arg in every if arg is not None):
            own = number == 0 and arg.arg in ("self", "cls") and instance is not None
            value: Value = Opaque(f"p:{id(function)}:{arg.arg}", outside=True)
            path.env[(path.chain[0], arg.arg)] = instance if own and instance is not None else value

    def _decorate(self, function: Function, path: Path) -> None:
        for decorator in getattr(function.node, "decorator_list", ()):
            if not function.view.memo(facts).is_hot(decorator) and last_name(decorator) not in (
                "no_grad",
                "inference_mode",
            ):
                continue
            value = self.quiet(decorator, Path(chain=(function.chain[-1],)))
            if isinstance(value, Region):
                path.contexts = (*path.contexts, value)
            elif last_name(decorator) in ("no_grad", "inference_mode"):
                path.contexts = (*path.contexts, Context("no_grad"))


def _splitting(node: ast.AST, is_hot: Callable[[ast.AST], bool]) -> Iterable[ast.expr]:
    """Hot calls and choices in the order of evaluation; not those inside lambdas and comprehensions."""
    if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)) or not is_hot(node):
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


def _number(key: str) -> Opaque:
    """A number that is another one in each iteration."""
    return Opaque(key, volatile=True, bases=frozenset((key,)))


def _wants_care(value: Value) -> bool:
    """Whether what is made of `value` must be worked out, and not only known to be made of it."""
    if isinstance(value, Opaque):
        return bool(value.mark or value.scale or value.gradient or value.cut or value.unsure)
    return isinstance(value, (Items, Table))


def _cuts(node: ast.AST) -> bool:
    """Whether a chain of calls takes its value out of the graph: `loss.detach().mean()`."""
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute) and node.attr in _OUT_OF_GRAPH:
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return False


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


def _is_static(node: ast.AST) -> bool:
    return any(last_name(d) == "staticmethod" for d in getattr(node, "decorator_list", ()))


def _keys(value: Value) -> set[str]:
    if isinstance(value, (Optimizer, Scaler)):
        return {value.key}
    if isinstance(value, Items):
        return {key for item in value.items for key in _keys(item)}
    if isinstance(value, Table):
        return {key for _, item in value.items for key in _keys(item)}
    if isinstance(value, Partial):
        return {key for item in (*value.args, *value.kwargs.values()) for key in _keys(item)}
    return set()
