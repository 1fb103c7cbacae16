"""Walking into a function: its arguments, its frame, what it leaves behind."""

from __future__ import annotations

import abc
import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mixprec.lint.protocol._facts import facts, last_name
from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import NONE, Path, join
from mixprec.lint.protocol._taint import combined
from mixprec.lint.protocol._values import (
    Const,
    Context,
    Function,
    Instance,
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
from mixprec.lint.protocol._binding import Binding

__all__ = ["Functions"]

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEEPEST = 10
MOST_WALKS = 12


class Functions(Binding):
    """Walks into functions."""

    def __init__(self, view: FileView, machine: Machine) -> None:
        super().__init__(view, machine)
        self.frames = 0
        self.entered: set[ast.AST] = set()
        self.stack: list[ast.AST] = []
        self.walks: Counter[ast.AST] = Counter()
        self.most_optimizers = 0

    def join(self, paths: Iterable[Path]) -> list[Path]:
        """The paths with those made one that nothing tells apart."""
        every = list(paths)
        return every if len(every) < 2 else join(every, self.tested)

    @abc.abstractmethod
    def block(self, body: Sequence[ast.stmt], paths: list[Path]) -> list[Path]:
        """`body` walked by all `paths`."""

    def new_frame(self) -> int:
        """A number that no other frame has."""
        self.frames += 1
        return self.frames

    def run(
        self,
        function: Function,
        args: list[Value],
        kwargs: Mapping[str, Value],
        call: ast.AST,
        path: Path,
        always: bool = False,
    ) -> list[Path]:
        """Walk through `function`, if anything in it can matter or `always`; each path out of it has its `result`."""
        node = function.node
        self.walks[node] += 1
        out_of_reach = node in self.stack or len(self.stack) >= DEEPEST or self.walks[node] > MOST_WALKS
        if out_of_reach or node in function.view.memo(facts).generators:
            if function.view.memo(facts).is_hot(node):
                self.machine.escape(path, list(path.optimizers))
            path.result = Opaque(f"?{id(call)}{self.place(path)}", bool(path.loops), unsure=True)
            return [path]
        known = function.view.memo(facts)
        self.entered.add(node)
        if isinstance(node, _DEFS) and not known.is_hot(node) and not always:
            key = f"{function.key}({','.join(a.key for a in (*args, *kwargs.values()))}){self.place(path)}"
            plain = combined(key, [*args, *kwargs.values()], bool(path.loops))
            region = plain.region or self.recorded_region(path)
            path.result = replace(plain, outside=False, region=region, cut=None, data=False)
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
        if not self._captured(frame, path):
            path.env = {place: value for place, value in path.env.items() if place[0] != frame}
        self._collect(path)

    @staticmethod
    def _captured(frame: int, path: Path) -> bool:
        """Whether a function that was made in `frame` outlives it."""
        kept = (path.result, *path.heap.values(), *(v for place, v in path.env.items() if place[0] != frame))
        return any(frame in one.chain for value in kept for one in _functions_in(value))

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
        if spec.vararg is not None:
            bound[spec.vararg.arg] = Items(tuple(value for value in given[len(names) :] if value is not None))
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = Table(tuple((name, value) for name, value in kwargs.items() if name not in every))
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


def _is_static(node: ast.AST) -> bool:
    return any(last_name(d) == "staticmethod" for d in getattr(node, "decorator_list", ()))


def _functions_in(value: Value) -> Iterable[Function]:
    """The functions in a value, those in collections and partial calls included."""
    if isinstance(value, Function):
        yield value
    elif isinstance(value, Items):
        yield from (one for item in value.items for one in _functions_in(item))
    elif isinstance(value, Table):
        yield from (one for _, item in value.items for one in _functions_in(item))
    elif isinstance(value, Partial):
        yield from (one for item in (value.function, *value.args) for one in _functions_in(item))


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
