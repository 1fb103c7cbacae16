"""Which event of the protocol a method call is: scale, backward, unscale, clip, step, update, clear."""

from __future__ import annotations

import abc
import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from mixprec.lint.protocol._conditions import TRUE, Atom
from mixprec.lint.protocol._entering import enters_stack
from mixprec.lint.protocol._expressions import Expressions
from mixprec.lint.protocol._facts import last_name
from mixprec.lint.protocol._path import EVERY, Path
from mixprec.lint.protocol._taint import short
from mixprec.lint.protocol._undone import divisors
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
    Region,
    Scaler,
    Scheduler,
    Table,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NORMS", "Arguments", "Events"]

_CUTS = frozenset({"detach", "item", "numpy", "tolist"})
_KEEPING = frozenset(
    {"cpu", "cuda", "double", "float", "half", "mean", "requires_grad_", "squeeze", "sum", "to", "view"}
)
NORMS = frozenset({"clamp", "clamp_", "norm"})
Arguments = tuple[list[Value], "Mapping[str, Value]"]


class Events(Expressions):
    """Recognises events and hands them to the machine."""

    def done(self, call: ast.Call, path: Path, value: Value) -> list[Path]:
        """`call` returned `value`."""
        path.expanded[call] = value
        return [path]

    def _kept(self, call: ast.Call, path: Path, value: Value) -> Path:
        path.expanded[call] = value
        return path

    def arguments(self, call: ast.Call, path: Path) -> Arguments:
        """The values of the arguments."""
        args: list[Value] = []
        for arg in call.args:
            value = self.value(arg, path)
            args += value.items if isinstance(arg, ast.Starred) and isinstance(value, Items) else (value,)
        keywords: dict[str, Value] = {}
        for given in call.keywords:
            value = self.value(given.value, path)
            if given.arg is not None:
                keywords[given.arg] = value
            elif isinstance(value, Table):
                keywords |= {name: item for name, item in value.items if isinstance(name, str)}
        return args, keywords

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
        return Scaler(value.key, enabled, function=node if value.outside else None, picked=value.volatile)

    def optimizer(self, value: Value, node: ast.expr, path: Path, certain: bool = False) -> Optimizer | None:
        """`value` as an optimizer, where it plays one; `certain`: it is used as one here."""
        if isinstance(value, Optimizer):
            return value
        if isinstance(value, (Opaque, Known)) and (certain or self.facts(path).is_optimizer(last_name(node))):
            return Optimizer(value.key, outside=True)
        if isinstance(value, Instance) and (certain or self.facts(path).is_optimizer(last_name(node))):
            return Optimizer(value.key, kind=value.cls.node.name, outside=not value.made)
        return None

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
        if len(path.gradients) <= 2 and not self.machine.several:
            self.machine.clear(path, list(path.gradients), call)
            return
        if keys:
            self.machine.clear(path, keys, call)
        else:
            self.machine.ledger.reached.add(call)
        for key in list(path.gradients):
            owner = path.optimizers.get(key)
            if not keys or (owner is not None and owner.params is None):  # whose parameters it holds is not known
                path.gradients[key] = replace(path.gradients[key], unknown=True, parts=frozenset(), cleared=call)

    def _get_scale(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        scaler = self.scaler(base, func.value, path)
        if scaler is None:
            return None
        mark = self.mark(path, scaler)
        key = f"{scaler.key}.scale{mark.version}{self.place(path)}"
        return self.done(call, path, Opaque(short(key), volatile=True, scale=mark, number=True))

    def _state_dict(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        """The state of a scaler that is off is empty."""
        off = isinstance(base, Scaler) and self.machine.enabled(path, base) is False
        return self.done(call, path, Table(())) if off else None

    def _load_state_dict(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        if not isinstance(base, Scaler):
            return None
        args, _ = self.arguments(call, path)
        if args and isinstance(args[0], Table) and not args[0].items:
            self.machine.load_empty(path, base, call)
        return self.done(call, path, Const(None))

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

    def _on_opaque(self, call: ast.Call, func: ast.Attribute, base: Opaque, path: Path) -> list[Path] | None:
        args, _ = self.arguments(call, path)
        attr = func.attr
        if base.gradient:
            return self._on_gradient(call, attr, base, args, path)
        key = short(f"{base.key}.{attr}({','.join(a.key for a in args)})")
        if attr == "item":
            cut = None if base.mark is not None else "item()"
            return self.done(call, path, replace(base, key=key, number=True, cut=cut, region=None))
        if attr in _CUTS:
            return self.done(call, path, replace(base, key=key, cut=None if base.mark else f"{attr}()", region=None))
        if attr == "requires_grad_" and base.cut is not None and self._is_leaf_used(call, path):
            return self.done(call, path, replace(base, key=key, cut=None))
        if attr in _KEEPING or (base.cut is not None and all(map(_has_no_graph, args))):
            return self.done(call, path, replace(base, key=key))
        return None

    def _is_leaf_used(self, call: ast.Call, path: Path) -> bool:
        """Whether the script asks for the gradient of what it makes a leaf here, or trains it."""
        parent = self.file(path).parent(call)
        names = {last_name(target) for target in parent.targets} if isinstance(parent, ast.Assign) else set()
        func = call.func
        names |= {last_name(func.value)} if isinstance(func, ast.Attribute) else set()
        return bool(names & self.facts(path).leaves)

    def _on_gradient(self, call: ast.Call, attr: str, base: Opaque, args: list[Value], path: Path) -> list[Path]:
        text = self.text(self.file(path).statement(call), path)
        undone = any(isinstance(arg, Opaque) and arg.scale is not None for arg in args) or "scale" in text.lower()
        if attr in ("div_", "mul_") and undone:
            self.machine.escape(path, list(path.optimizers))
        elif attr == "zero_":
            self.machine.clear(path, list(path.gradients), call)
        elif attr in NORMS and not undone and not (attr == "norm" and self._is_divided(call, path)):
            self.machine.clip(path, None, call, "clamped" if "clamp" in attr else "measured")
        keeps = attr in ("abs", "data", "detach", "float", "flatten", "view", "reshape", "clone")
        return self.done(call, path, Opaque(f"grad{id(call)}{self.place(path)}", True, gradient=keeps))

    def _is_divided(self, norm: ast.expr, path: Path) -> bool:
        """Whether a norm is divided afterwards by the scale, or by a number that was one before a loop began."""
        for node in divisors(self.file(path), norm):
            value = self.value(node, path) if isinstance(node, ast.Name) else None
            if isinstance(value, Opaque) and (value.scale is not None or (value.number and value.unsure)):
                return True
            if "scale" in self.text(node, path).lower():
                return True
        return False

    def _on_items(self, call: ast.Call, func: ast.Attribute, base: Table | Items, path: Path) -> list[Path] | None:
        if isinstance(base, Table) and func.attr == "values":
            return self.done(call, path, Items(tuple(item for _, item in base.items)))
        if isinstance(base, Table) and func.attr == "items":
            return self.done(call, path, Items(tuple(Items((Const(key), item)) for key, item in base.items)))
        return None

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

    def _enter_context(self, call: ast.Call, func: ast.Attribute, base: Value, path: Path) -> list[Path] | None:
        """What a stack enters rules until the `with` of the stack ends, which brings back what ruled before."""
        if not enters_stack(self.file(path), call):
            return None
        args, _ = self.arguments(call, path)
        if args and (isinstance(args[0], Region) or (isinstance(args[0], Context) and args[0].kind == "no_grad")):
            path.contexts = (*path.contexts, args[0])
        return self.done(call, path, args[0] if args else Const(None))

    _EVENTS: ClassVar[dict[str, Callable[[Events, ast.Call, ast.Attribute, Value, Path], list[Path] | None]]] = {
        "backward": _backward,
        "clip_grad_norm_": _clip_method,
        "enter_context": _enter_context,
        "first_step": _half_step,
        "get_scale": _get_scale,
        "is_enabled": _is_enabled,
        "load_state_dict": _load_state_dict,
        "scale": _scale,
        "second_step": _half_step,
        "state_dict": _state_dict,
        "step": _step,
        "unscale_": _unscale,
        "update": _update,
        "zero_grad": _zero_grad,
    }

    @abc.abstractmethod
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


def _has_no_graph(value: Value) -> bool:
    """Whether no gradient can flow through an argument."""
    return isinstance(value, (Const, Items)) or (isinstance(value, Opaque) and (value.data or value.cut is not None))


def _is_closure(value: Value) -> bool:
    """Whether an argument of a step is a closure for sure: a wrapper that hands its own argument on may hold None."""
    return not isinstance(value, Const) and not (isinstance(value, Opaque) and value.outside)
