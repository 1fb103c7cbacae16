"""What a call does to the protocol: it is an event, it makes something, or it is walked into.

Calls that can matter are carried out once, in the order of evaluation, before their statement is; each may split the
path. What they returned waits in `path.expanded`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mixprec.lint._names import AUTOCASTS
from mixprec.lint.protocol._facts import ACTIVE, CLIPPERS, facts, last_name
from mixprec.lint.protocol._last_name import is_super
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._taint import combined, without_graph
from mixprec.lint.protocol._values import (
    Class,
    Function,
    Instance,
    Items,
    Known,
    Opaque,
    Optimizer,
    Partial,
    Region,
    Scaler,
    Scheduler,
    Table,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
from mixprec.lint.protocol._library import Library

__all__ = ["Calls"]

_HARMLESS = re.compile(
    r"sched|save|load|log|print|adjust|warm|get_|set_|build|make|create|init|state|lr|len|isinstance|prepare|DataParallel|compile|EMA|ema"
)
_LOOKS = frozenset({"callable", "hasattr", "id", "isinstance", "print", "repr", "str", "type"})
_LOGS = re.compile(
    r"log|print|write|writer|append|update|scalar|info|debug|record|report|meter|postfix|add", re.IGNORECASE
)


class Calls(Library):
    """Carries out calls."""

    def expand(self, call: ast.Call, path: Path) -> list[Path]:
        """`call` carried out; the value is left in `expanded` of each path that comes out."""
        if call in path.expanded:
            return [path]
        self.machine.ledger.reached.add(call)
        if self.machine.site is not None:
            self.machine.sites.setdefault(call, self.machine.site)
        func = call.func
        if isinstance(func, ast.Attribute):
            out = self._method(call, func, path)
            if out is not None:
                return out
        return self._apply(call, self.value(func, path), path)

    def _call(self, node: ast.Call, path: Path) -> Value:
        """A call met inside an expression that cannot split the path."""
        out = self.expand(node, path)
        if len(out) == 1 and out[0] is path:
            return path.expanded[node]
        return Opaque(f"?{id(node)}{self.place(path)}", bool(path.loops), unsure=True)

    def _apply(self, call: ast.Call, func: Value, path: Path) -> list[Path]:
        if isinstance(func, Known):
            return self._library(call, func.name, path)
        if isinstance(func, Partial):
            return self._partial(call, func, path)
        if isinstance(func, Class):
            return self._construct(call, func, path)
        if isinstance(func, Instance):
            for name in ("__call__", "forward"):
                method = self.member(func, name, path)
                if isinstance(method, Function):
                    func = method
                    break
        if isinstance(func, Function):
            args, kwargs = self.arguments(call, path)
            if not func.raw and self._wrappers(func):
                return self._through_wrappers(call, func, args, kwargs, path)
            if last_name(call.func) in CLIPPERS and not func.view.memo(facts).is_hot(func.node):
                return self._clip_call(call, path)
            return [self._kept(call, one, one.result) for one in self.run(func, args, kwargs, call, path)]
        return self._unresolved(call, func, path)

    def _wrappers(self, function: Function) -> list[ast.expr]:
        """Decorators of the project that may do more than call the function."""
        known = function.view.memo(facts)
        nodes = getattr(function.node, "decorator_list", ())
        return [node for node in nodes if last_name(node) in known.functions and known.is_hot(node)]

    def _through_wrappers(
        self, call: ast.Call, function: Function, args: list[Value], kwargs: Mapping[str, Value], path: Path
    ) -> list[Path]:
        """A call of a decorated function: what its decorators made of it is called."""
        paths = [path]
        path.result = replace(function, bound=None, raw=True)
        for node in reversed(self._wrappers(function)):
            wrapper = self.quiet(node, Path(chain=(function.chain[-1],)))
            if not isinstance(wrapper, Function):
                self.machine.escape(path, list(path.optimizers))
                return self.done(call, path, Opaque(f"?{id(call)}{self.place(path)}", bool(path.loops), unsure=True))
            paths = [out for one in paths for out in self.run(wrapper, [one.result], {}, node, one)]
        own = [] if function.bound is None else [function.bound]
        out: list[Path] = []
        for one in paths:
            if isinstance(one.result, Function):
                done = self.run(one.result, [*own, *args], kwargs, call, one)
                out += [self._kept(call, each, each.result) for each in done]
            else:
                self.machine.escape(one, list(one.optimizers))
                out += self.done(call, one, Opaque(f"?{id(call)}{self.place(one)}", bool(one.loops), unsure=True))
        return out

    def _partial(self, call: ast.Call, func: Partial, path: Path) -> list[Path]:
        args, kwargs = self.arguments(call, path)
        args, kwargs = [*func.args, *args], {**func.kwargs, **kwargs}
        if isinstance(func.function, Known) and func.function.name in AUTOCASTS:
            return self.done(call, path, self._region(call, func.function.name, args, kwargs, path, func.node))
        if isinstance(func.function, Function):
            return [self._kept(call, one, one.result) for one in self.run(func.function, args, kwargs, call, path)]
        return self._unresolved(call, func, path)

    def _construct(self, call: ast.Call, cls: Class, path: Path) -> list[Path]:
        args, kwargs = self.arguments(call, path)
        key = f"new{call.lineno}.{call.col_offset}{self.place(path)}"
        if any(_optimizer_base(base) for one in self.bases(cls) for base in one.node.bases):
            return self.done(call, path, self._new_optimizer(call, cls.node.name, args, path))
        instance = Instance(key, cls, made=True)
        init = next((n for c in self.bases(cls) for n in c.node.body if _is_init(n)), None)
        if init is None:
            return self.done(call, path, instance)
        bound = self.member(instance, "__init__", path)
        if not isinstance(bound, Function):
            return self.done(call, path, instance)
        keeps = any(map(_is_kept, (*args, *kwargs.values())))
        return [self._kept(call, one, instance) for one in self.run(bound, args, kwargs, call, path, keeps)]

    def _unresolved(self, call: ast.Call, func: Value, path: Path) -> list[Path]:
        args, kwargs = self.arguments(call, path)
        every = [*args, *kwargs.values()]
        name = last_name(call.func)
        if call in self.facts(path).carried.indirect or (not _is_quiet(func) and any(map(_takes_part, every))):
            self.machine.escape(path, list(path.optimizers))
        for value, node in zip(args, call.args, strict=False):
            if isinstance(value, Opaque) and value.mark is not None and _LOGS.search(name):
                self.machine.shown(path, value.mark, node)
        self._escapes(call, func, name, every, path)
        key = f"{self.text(call.func, path)}({','.join(value.key for value in every)}){self.place(path)}"
        owner = [self.value(call.func.value, path)] if isinstance(call.func, ast.Attribute) else []
        result = combined(key, [*every, *owner], bool(path.loops))
        marked = result.mark is not None or result.unsure
        pure = self._is_pure(call, func, path)
        cut = without_graph(result, every).cut if pure and every else None
        return self.done(
            call,
            path,
            replace(
                result,
                mark=None,
                unsure=marked,
                cut=cut,
                data=False,
                number=False,
                outside=False,
                gradient=False,
                region=result.region or self.recorded_region(path),
            ),
        )

    def _is_pure(self, call: ast.Call, func: Value, path: Path) -> bool:
        """Whether what is called has no parameters: a function of torch, or one of its losses."""
        if isinstance(func, Known):
            return func.name.startswith("torch.")
        view, made = self.file(path), None
        if isinstance(call.func, ast.Name):
            values = view.assignments(view.function(call) or view.tree).get(call.func.id) or view.assignments(
                view.tree
            ).get(call.func.id, ())
            made = values[0] if len(values) == 1 else None
        elif isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "self":
            cls = view.class_of(call)
            members = self.facts(path).members.get(cls, {}).get(call.func.attr, []) if cls is not None else []
            made = members[0] if len(members) == 1 else None
        name = view.dotted(made.func) if isinstance(made, ast.Call) else None
        return name is not None and name.startswith("torch.nn.") and name.endswith("Loss")

    def recorded_region(self, path: Path) -> Region | None:
        """The region that marks what is made here, if it is recorded for backward."""
        return None if self.machine.without_gradients(path) else self.machine.region(path)

    def _escapes(self, call: ast.Call, func: Value, name: str, args: list[Value], path: Path) -> None:
        """Optimizers and scalers that are handed to code which is not here are out of sight from then on."""
        nodes = [*call.args, *(given.value for given in call.keywords)]
        given = [self.optimizer(value, node, path) for value, node in zip(args, nodes, strict=False)]
        if call in self.facts(path).entrusted and not _HARMLESS.search(name):
            self.machine.escape(path, list(path.optimizers))
        optimizers = [one.key for one in given if one is not None]
        scaler = any(self.scaler(value, node, path) is not None for value, node in zip(args, nodes, strict=False))
        backward = "backward" in name
        if not optimizers and not scaler and not backward and not (name and self._inherited(call, func)):
            return
        if isinstance(func, Known) and func.name.startswith(("torch.", "math.", "np.", "numpy.")):
            return
        if (scaler or ACTIVE.search(name)) and not _HARMLESS.search(name):
            self.machine.escape(path, optimizers or list(path.optimizers))

    def _inherited(self, call: ast.Call, func: Value) -> bool:
        """A method of the own object that is not here: `self.optimizer_step()` of a base class of a library."""
        target = call.func
        return (
            isinstance(func, Opaque)
            and isinstance(target, ast.Attribute)
            and (is_super(target.value) or (isinstance(target.value, ast.Name) and target.value.id == "self"))
        )


def _is_kept(value: Value) -> bool:
    """Whether it matters where a constructor puts an argument."""
    if isinstance(value, (Items, Table)):
        inside = value.items if isinstance(value, Items) else tuple(item for _, item in value.items)
        return any(map(_is_kept, inside))
    return isinstance(value, (Function, Instance, Optimizer, Partial, Region, Scaler, Scheduler))


def _takes_part(value: Value) -> bool:
    """Whether an argument is a function that touches the protocol: whoever gets it may call it."""
    if isinstance(value, Partial):
        return _takes_part(value.function)
    return isinstance(value, Function) and value.view.memo(facts).is_hot(value.node)


def _is_quiet(func: Value) -> bool:
    """Whether what is called only looks at functions that it is given."""
    return isinstance(func, Known) and func.name in _LOOKS


def _optimizer_base(base: ast.expr) -> bool:
    return last_name(base) == "Optimizer"


def _is_init(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"
