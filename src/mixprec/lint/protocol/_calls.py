"""What a call does to the protocol: it is an event, it makes something, or it is walked into.

Calls that can matter are carried out once, in the order of evaluation, before their statement is; each may split the
path. What they returned waits in `path.expanded`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from mixprec.lint._constants import Dtype
from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint.protocol._conditions import TRUE, Atom, Formula
from mixprec.lint.protocol._expressions import Expressions, combined, short
from mixprec.lint.protocol._facts import ACTIVE, CLIPPERS, facts, last_name
from mixprec.lint.protocol._path import EVERY, Path
from mixprec.lint.protocol._values import (
    Class,
    Const,
    Context,
    Function,
    Instance,
    Items,
    Known,
    Logic,
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

__all__ = ["Calls"]

_HARMLESS = re.compile(
    r"sched|save|load|log|print|adjust|warm|get_|set_|build|make|create|init|state|lr|len|isinstance|prepare|DataParallel|compile|EMA|ema"
)
_CUTS = frozenset({"detach", "item", "numpy", "tolist"})
_MADE_OF_NUMBERS = frozenset(
    {"torch.FloatTensor", "torch.Tensor", "torch.as_tensor", "torch.from_numpy", "torch.tensor"}
)
_KEEPING = frozenset(
    {"cpu", "cuda", "double", "float", "half", "mean", "requires_grad_", "squeeze", "sum", "to", "view"}
)
_NOTHING = frozenset({"contextlib.nullcontext", "contextlib.suppress", "nullcontext", "suppress"})
_NO_GRAD = frozenset(
    {"torch.inference_mode", "torch.no_grad", "torch.autograd.no_grad", "torch.autograd.inference_mode"}
)
_NORMS = frozenset({"clamp", "clamp_", "norm"})
_LOGS = re.compile(
    r"log|print|write|writer|append|update|scalar|info|debug|record|report|meter|postfix|add", re.IGNORECASE
)

Arguments = tuple[list[Value], "Mapping[str, Value]"]


class Calls(Expressions):
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

    def done(self, call: ast.Call, path: Path, value: Value) -> list[Path]:
        """`call` returned `value`."""
        path.expanded[call] = value
        return [path]

    def arguments(self, call: ast.Call, path: Path) -> Arguments:
        """The values of the arguments."""
        args: list[Value] = []
        for arg in call.args:
            value = self.value(arg, path)
            args += value.items if isinstance(arg, ast.Starred) and isinstance(value, Items) else (value,)
        return args, {given.arg: self.value(given.value, path) for given in call.keywords if given.arg is not None}

    # --- methods that are events

    def _method(self, call: ast.Call, func: ast.Attribute, path: Path) -> list[Path] | None:
        """The event that a method call is; None where it is an ordinary call."""
        base = self.value(func.value, path)
        handler = self._EVENTS.get(func.attr)
        if handler is not None and not (isinstance(base, Instance) and self._has(base, func.attr)):
            out: list[Path] | None = handler(self, call, func, base, path)
            if out is not None:
                return out
        if isinstance(base, Opaque):
            return self._on_opaque(call, func, base, path)
        if isinstance(base, (Table, Items)):
            return self._on_items(call, func, base, path)
        return None

    def _has(self, instance: Instance, attr: str) -> bool:
        return isinstance(self.member(instance, attr, path=Path()), Function)

    def scaler(self, value: Value, node: ast.expr, path: Path) -> Scaler | None:
        """`value` as a scaler, where it plays one."""
        if isinstance(value, Scaler):
            return value
        if not isinstance(value, Opaque) or not self.facts(path).is_scaler(last_name(node)):
            return None
        literal = path.literals.get(short(f"none:{value.key}"))
        if literal is not None and literal.value:
            return None
        enabled = Atom(f"{value.key}.enabled", "")
        return Scaler(value.key, enabled, function=node if value.outside else None)

    def optimizer(self, value: Value, node: ast.expr, path: Path, certain: bool = False) -> Optimizer | None:
        """`value` as an optimizer, where it plays one; `certain`: it is used as one here."""
        if isinstance(value, Optimizer):
            return value
        if isinstance(value, (Opaque, Known)) and (certain or self.facts(path).is_optimizer(last_name(node))):
            return Optimizer(value.key, outside=True)
        if isinstance(value, Instance) and (certain or self.facts(path).is_optimizer(last_name(node))):
            return Optimizer(value.key, kind=value.cls.node.name, outside=not value.made)
        return None

    def _backward(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        if isinstance(base, Known) and base.name == "torch.autograd" and call.args:
            self.machine.backward(path, self.opaque(self.value(call.args[0], path)), call)
            return self.done(call, path, Const(None))
        if isinstance(base, (Optimizer, Scaler, Known, Class)) or (call.args and "loss" not in last_name(func.value)):
            self.arguments(call, path)
            self.machine.escape(path, list(path.optimizers))
            return self.done(call, path, Const(None))
        self.arguments(call, path)
        self.machine.backward(path, self.opaque(base), call)
        return self.done(call, path, Const(None))

    def _scale(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        scaler = self.scaler(base, func.value, path)
        if scaler is None or not call.args:
            return None
        value = self.value(call.args[0], path)
        return self.done(call, path, self.machine.scale(path, scaler, self.opaque(value)))

    def _unscale(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        scaler = self.scaler(base, func.value, path)
        if scaler is None or not call.args:
            return None
        optimizer = self.optimizer(self.value(call.args[0], path), call.args[0], path, certain=True)
        if optimizer is None:
            self.machine.escape(path, list(path.optimizers))
        else:
            self.machine.unscale(path, scaler, optimizer, call)
        return self.done(call, path, Const(None))

    def _step(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        scaler = self.scaler(base, func.value, path)
        if scaler is not None:
            return self._scaler_step(call, scaler, path)
        name = last_name(func.value)
        if isinstance(base, Scheduler) or (isinstance(base, Opaque) and self.facts(path).is_scheduler(name)):
            args, kwargs = self.arguments(call, path)
            if not args and not kwargs and isinstance(self.file(path).parent(call), ast.Expr):
                self.machine.schedule(path, base if isinstance(base, Scheduler) else Scheduler(base.key), call)
            return self.done(call, path, Const(None))
        optimizer = self.optimizer(base, func.value, path)
        if optimizer is None:
            return None
        args, kwargs = self.arguments(call, path)
        closure = next((a for a in (*args, *kwargs.values()) if isinstance(a, Function)), None)
        if closure is not None:
            paths = self.run(closure, [], {}, call, path)
            for one in paths:
                self.machine.plain_step(one, optimizer, call)
            return [self._kept(call, one, Const(None)) for one in paths]
        if args or kwargs:
            self.machine.escape(path, [optimizer.key])
        else:
            self.machine.plain_step(path, optimizer, call)
        return self.done(call, path, Const(None))

    def _scaler_step(self, call: ast.Call, scaler: Scaler, path: Path) -> list[Path]:
        if not call.args:
            return self.done(call, path, Opaque(f"step{id(call)}{self.place(path)}", volatile=True))
        optimizer = self.optimizer(self.value(call.args[0], path), call.args[0], path, certain=True)
        args, kwargs = self.arguments(call, path)
        if optimizer is None:
            self.machine.escape(path, list(path.optimizers))
        else:
            given = [*args[1:], *(value for name, value in kwargs.items() if name == "closure")]
            if optimizer.kind == "LBFGS" or any(_is_closure(value) for value in given):
                self.machine.closure_step(path, scaler, optimizer, call)
            else:
                self.machine.scaler_step(path, scaler, optimizer, call)
        return self.done(
            call, path, Opaque(f"step{id(call)}{self.place(path)}", volatile=True, scale=self.mark(path, scaler))
        )

    def _update(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        scaler = self.scaler(base, func.value, path)
        if scaler is None:
            return None
        args, kwargs = self.arguments(call, path)
        if args or kwargs:
            self.machine.set_scale(path, scaler)
        else:
            self.machine.update(path, scaler, call)
        return self.done(call, path, Const(None))

    def _zero_grad(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        optimizer = self.optimizer(base, func.value, path)
        if optimizer is not None:
            self.machine.know(path, optimizer)
            several = len(path.optimizers) > 1 or self.machine.several
            self.machine.clear(path, [optimizer.key] if several else [optimizer.key, EVERY], call)
        else:
            self._clear_module(call, base, path)
        return self.done(call, path, Const(None))

    def _clear_module(self, call: ast.AST, base: Value, path: Path) -> None:
        keys = [key for key, optimizer in path.optimizers.items() if optimizer.params == base.key]
        if len(path.optimizers) <= 1 and not self.machine.several:
            self.machine.clear(path, [*path.optimizers, EVERY], call)
        elif keys:
            self.machine.clear(path, keys, call)
        else:
            self.machine.ledger.reached.add(call)
            for key in list(path.gradients):
                path.gradients[key] = replace(path.gradients[key], unknown=True, parts=frozenset(), cleared=call)

    def _get_scale(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        scaler = self.scaler(base, func.value, path)
        if scaler is None:
            return None
        mark = self.mark(path, scaler)
        key = f"{scaler.key}.scale{mark.version}{self.place(path)}"
        return self.done(call, path, Opaque(short(key), volatile=True, scale=mark, number=True))

    def _is_enabled(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        scaler = self.scaler(base, func.value, path)
        if scaler is None:
            return None
        formula = scaler.enabled
        return self.done(call, path, Const(True) if formula == TRUE else Logic(formula))

    def _half_step(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        optimizer = self.optimizer(base, func.value, path)
        if optimizer is None:
            return None
        self.arguments(call, path)
        self.machine.half_step(path, optimizer, call, last=func.attr == "second_step")
        return self.done(call, path, Const(None))

    def _clip_method(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        if isinstance(base, Known):
            return None
        params = None if self.optimizer(base, func.value, path) is not None else base.key
        return self._clip(call, params, path)

    _EVENTS: ClassVar[dict[str, Callable[[Calls, ast.Call, ast.Attribute, Value, Path], list[Path] | None]]] = {
        "backward": _backward,
        "clip_grad_norm_": _clip_method,
        "first_step": _half_step,
        "get_scale": _get_scale,
        "is_enabled": _is_enabled,
        "scale": _scale,
        "second_step": _half_step,
        "step": _step,
        "unscale_": _unscale,
        "update": _update,
        "zero_grad": _zero_grad,
    }

    # --- other methods

    def _on_opaque(self, call: ast.Call, func: ast.Attribute, base: Opaque, path: Path) -> list[Path] | None:
        args, _ = self.arguments(call, path)
        attr = func.attr
        if base.gradient:
            return self._on_gradient(call, attr, base, args, path)
        key = short(f"{base.key}.{attr}({','.join(a.key for a in args)})")
        if attr == "item":
            cut = None if base.mark is not None else "item()"
            return self.done(call, path, replace(base, key=key, number=True, cut=cut))
        if attr in _CUTS:
            return self.done(call, path, replace(base, key=key, cut=None if base.mark else f"{attr}()"))
        if attr in _KEEPING:
            return self.done(call, path, replace(base, key=key))
        return None

    def _on_gradient(self, call: ast.Call, attr: str, base: Opaque, args: list[Value], path: Path) -> list[Path]:
        text = self.text(self.file(path).statement(call), path)
        undone = any(isinstance(arg, Opaque) and arg.scale is not None for arg in args) or "scale" in text.lower()
        if attr in ("div_", "mul_") and undone:
            self.machine.escape(path, list(path.optimizers))
        elif attr == "zero_":
            self.machine.clear(path, list(path.gradients), call)
        elif attr in _NORMS and not undone:
            self.machine.clip(path, None, call, "clamped" if "clamp" in attr else "measured")
        keeps = attr in ("abs", "data", "detach", "float", "flatten", "view", "reshape", "clone")
        return self.done(call, path, Opaque(f"grad{id(call)}{self.place(path)}", True, gradient=keeps))

    def _on_items(self, call: ast.Call, func: ast.Attribute, base: Table | Items, path: Path) -> list[Path] | None:
        if isinstance(base, Table) and func.attr == "values":
            return self.done(call, path, Items(tuple(item for _, item in base.items)))
        if isinstance(base, Table) and func.attr == "items":
            return self.done(call, path, Items(tuple(Items((Const(key), item)) for key, item in base.items)))
        return None

    # --- calls of values

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
            if last_name(call.func) in CLIPPERS and not func.view.memo(facts).is_hot(func.node):
                return self._clip_call(call, path)
            return [self._kept(call, one, one.result) for one in self.run(func, args, kwargs, call, path)]
        return self._unresolved(call, func, path)

    def _kept(self, call: ast.Call, path: Path, value: Value) -> Path:
        path.expanded[call] = value
        return path

    def run(
        self, function: Function, args: list[Value], kwargs: Mapping[str, Value], call: ast.AST, path: Path
    ) -> list[Path]:
        """Walk through `function`; each path that comes out has its `result`."""
        raise NotImplementedError

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
        return [self._kept(call, one, instance) for one in self.run(bound, args, kwargs, call, path)]

    def _new_optimizer(self, call: ast.Call, kind: str, args: list[Value], path: Path) -> Optimizer:
        params = None
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "parameters":
            params = self.value(given.func.value, path).key
        key = f"opt{call.lineno}.{call.col_offset}{self.place(path)}"
        made = Optimizer(key, kind, params, call, path.loops)
        self.machine.create(path, made)
        return made

    def _library(self, call: ast.Call, name: str, path: Path) -> list[Path]:
        tail = name.rpartition(".")[2]
        if tail in CLIPPERS:
            return self._clip_call(call, path)
        args, kwargs = self.arguments(call, path)
        value = self._made(call, name, tail, args, kwargs, path)
        if value is not None:
            return self.done(call, path, value)
        if name == "torch.autograd.backward" and args:
            self.machine.backward(path, self.opaque(args[0]), call)
            return self.done(call, path, Const(None))
        if name.startswith("torch.") and tail in _NORMS and any(isinstance(a, Opaque) and a.gradient for a in args):
            return self._on_gradient(call, tail, Opaque("grad", gradient=True), args[1:], path)
        return self._unresolved(call, Known(name), path)

    def _made(
        self, call: ast.Call, name: str, tail: str, args: list[Value], kwargs: Mapping[str, Value], path: Path
    ) -> Value | None:
        """What a library's constructor makes, where that matters."""
        if name in SCALERS:
            return self._new_scaler(call, args, kwargs, path)
        if name in AUTOCASTS:
            return self._region(call, name, args, kwargs, path, call)
        if name in _NOTHING:
            return Context("nothing")
        if name in _NO_GRAD:
            return Context("no_grad")
        if tail == "Join" and name.startswith("torch."):
            return Context("join", call)
        if name in ("functools.partial", "partial") and args:
            return Partial(args[0], tuple(args[1:]), dict(kwargs), call)
        if "lr_scheduler" in name and args:
            return Scheduler(f"sched{id(call)}", args[0].key if isinstance(args[0], Optimizer) else None)
        if self._makes_optimizer(call, name, tail):
            return self._new_optimizer(call, tail, args, path)
        if name in _MADE_OF_NUMBERS:
            return Opaque(f"{tail}{id(call)}{self.place(path)}", bool(path.loops), cut=f"{name}(...)")
        if name in ("list", "tuple", "reversed", "sorted", "iter") and len(args) == 1 and isinstance(args[0], Items):
            return args[0]
        if name in ("float", "int") and len(args) == 1:
            value = self.opaque(args[0])
            return replace(value, key=short(f"{name}({value.key})"), number=True)
        return None

    def _makes_optimizer(self, call: ast.Call, name: str, tail: str) -> bool:
        if name.startswith("torch.optim."):
            return tail[:1].isupper() and "swa_utils" not in name
        given = call.args[0] if call.args else None
        owns = isinstance(given, ast.Call) and last_name(given) == "parameters"
        return owns and tail[:1].isupper() and tail not in ("Join", "ExponentialMovingAverage")

    def _new_scaler(self, call: ast.Call, args: list[Value], kwargs: Mapping[str, Value], path: Path) -> Scaler:
        given = next((k.value for k in call.keywords if k.arg == "enabled"), None)
        enabled: Formula = TRUE if given is None else self.condition(given, path)
        function = self.file(path).function(call)
        key = f"scaler{call.lineno}.{call.col_offset}{self.place(path)}"
        made = Scaler(key, enabled, call, path.loops, function)
        self.machine.create_scaler(path, made)
        return made

    def _region(
        self,
        call: ast.Call,
        name: str,
        args: list[Value],
        kwargs: Mapping[str, Value],
        path: Path,
        node: ast.AST | None,
    ) -> Region:
        device_free = ".amp." in name and "torch.amp" not in name
        order = ("enabled", "dtype") if device_free else ("device_type", "dtype", "enabled")
        given = {**dict(zip(order, args, strict=False)), **kwargs}
        device = name.split(".")[1] if device_free else _device(given.get("device_type"))
        enabled: Formula = TRUE
        if "enabled" in given:
            written = next((k.value for k in call.keywords if k.arg == "enabled"), None)
            enabled = self.truth(given["enabled"], written if written is not None else call, path)
        dtype = given.get("dtype")
        if dtype is None or (isinstance(dtype, Const) and dtype.value is None):
            default = {"cuda": "float16", "cpu": "bfloat16", "xpu": "bfloat16"}.get(device or "")
            return Region(f"region{id(call)}", default, False, enabled, node)
        named = dtype.value.name if isinstance(dtype, Const) and isinstance(dtype.value, Dtype) else None
        return Region(f"region{id(call)}", named, True, enabled, node)

    # --- clipping

    def _clip_call(self, call: ast.Call, path: Path) -> list[Path]:
        params = None
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Name):
            assigned = self.file(path).assignments(self.file(path).function(given) or self.file(path).tree)
            values = assigned.get(given.id, ())
            given = values[0] if len(values) == 1 else given
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "parameters":
            params = self.value(given.func.value, path).key
        return self._clip(call, params, path)

    def _clip(self, call: ast.Call, params: str | None, path: Path) -> list[Path]:
        args, kwargs = self.arguments(call, path)
        scaled_limit = any(isinstance(a, Opaque) and a.scale is not None for a in (*args, *kwargs.values()))
        if not scaled_limit and "scale" not in self.text(call, path).lower():
            self.machine.clip(path, params, call, "clipped")
        return self.done(call, path, Opaque(f"norm{id(call)}{self.place(path)}", volatile=True))

    # --- calls that lead out of sight

    def _unresolved(self, call: ast.Call, func: Value, path: Path) -> list[Path]:
        args, kwargs = self.arguments(call, path)
        every = [*args, *kwargs.values()]
        name = last_name(call.func)
        for value, node in zip(args, call.args, strict=False):
            if isinstance(value, Opaque) and value.mark is not None and _LOGS.search(name):
                self.machine.shown(path, value.mark, node)
        self._escapes(call, func, name, every, path)
        key = f"{self.text(call.func, path)}({','.join(value.key for value in every)}){self.place(path)}"
        result = combined(key, every, bool(path.loops))
        marked = result.mark is not None or result.unsure
        return self.done(
            call,
            path,
            replace(
                result,
                mark=None,
                unsure=marked,
                cut=None,
                number=False,
                outside=False,
                gradient=False,
                region=result.region or self.recorded_region(path),
            ),
        )

    def recorded_region(self, path: Path) -> Region | None:
        """The region that marks what is made here, if it is recorded for backward."""
        return None if self.machine.without_gradients(path) else self.machine.region(path)

    def _escapes(self, call: ast.Call, func: Value, name: str, args: list[Value], path: Path) -> None:
        """Optimizers and scalers that are handed to code which is not here are out of sight from then on."""
        nodes = [*call.args, *(given.value for given in call.keywords)]
        given = [self.optimizer(value, node, path) for value, node in zip(args, nodes, strict=False)]
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
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        )


def _is_closure(value: Value) -> bool:
    """Whether an argument of a step is a closure for sure: a wrapper that hands its own argument on may hold None."""
    return not isinstance(value, Const) and not (isinstance(value, Opaque) and value.outside)


def _optimizer_base(base: ast.expr) -> bool:
    return last_name(base) == "Optimizer"


def _is_init(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def _device(value: Value | None) -> str | None:
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value.partition(":")[0]
    return None
