"""What the constructors of libraries make: scalers, regions, optimizers, schedulers, contexts."""

from __future__ import annotations

import abc
import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from mixprec.lint._constants import Dtype
from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint.protocol._conditions import TRUE, Formula
from mixprec.lint.protocol._facts import CLIPPERS, last_name
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._taint import short
from mixprec.lint.protocol._values import (
    Const,
    Context,
    Function,
    Items,
    Known,
    Opaque,
    Optimizer,
    Partial,
    Region,
    Scaler,
    Scheduler,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
from mixprec.lint.protocol._events import NORMS, Events

__all__ = ["Library"]

_MADE_OF_NUMBERS = frozenset(
    {"torch.FloatTensor", "torch.Tensor", "torch.as_tensor", "torch.from_numpy", "torch.tensor"}
)
_DEEPEST = 3
"""Names that stand for lists of parameters that hold names."""
_NOTHING = frozenset({"contextlib.nullcontext", "contextlib.suppress", "nullcontext", "suppress"})
_NO_GRAD = frozenset(
    {"torch.inference_mode", "torch.no_grad", "torch.autograd.no_grad", "torch.autograd.inference_mode"}
)


class Library(Events):
    """Knows what library calls make."""

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
        if name == "torch.autograd.grad" and (args or "outputs" in kwargs):
            outputs = self.opaque(args[0] if args else kwargs["outputs"])
            return self.done(call, path, replace(outputs, key=f"grad{id(call)}{self.place(path)}"))
        if name.startswith("torch.") and tail in NORMS and any(isinstance(a, Opaque) and a.gradient for a in args):
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
        if tail == "compile" and name.startswith("torch.") and args and isinstance(args[0], Function):
            return args[0]
        if name == "getattr" and len(args) > 1 and isinstance(args[1], Const) and isinstance(args[1].value, str):
            return self.attribute(args[0], args[1].value, path)
        if "lr_scheduler" in name and args:
            return Scheduler(f"sched{id(call)}", args[0].key if isinstance(args[0], Optimizer) else None)
        if self._makes_optimizer(call, name, tail):
            return self._new_optimizer(call, tail, args, path)
        if name in _MADE_OF_NUMBERS and not ("requires_grad" in kwargs and self._is_start(call, args, path)):
            return Opaque(f"{tail}{id(call)}{self.place(path)}", bool(path.loops), cut=f"{name}(...)")
        if name in ("list", "tuple", "reversed", "sorted", "iter") and len(args) == 1 and isinstance(args[0], Items):
            return args[0]
        if name in ("float", "int") and len(args) == 1:
            value = self.opaque(args[0])
            return replace(value, key=short(f"{name}({value.key})"), number=True)
        return None

    def _is_start(self, call: ast.Call, args: list[Value], path: Path) -> bool:
        """Whether a tensor that asks for gradients may be what is trained: made of constants, or used as such."""
        constant = not args or isinstance(args[0], (Const, Items))
        return constant or self._is_leaf_used(call, path)

    def _makes_optimizer(self, call: ast.Call, name: str, tail: str) -> bool:
        if name.startswith("torch.optim."):
            return tail[:1].isupper() and "swa_utils" not in name
        given = call.args[0] if call.args else None
        owns = isinstance(given, ast.Call) and last_name(given) == "parameters"
        return owns and tail[:1].isupper() and tail not in ("Join", "ExponentialMovingAverage")

    def _new_optimizer(self, call: ast.Call, kind: str, args: list[Value], path: Path) -> Optimizer:
        params = None
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "parameters":
            params = self.value(given.func.value, path).key
        key = f"opt{call.lineno}.{call.col_offset}{self.place(path)}"
        owned = frozenset(self._owned(given, path, 0)) if given is not None else frozenset[tuple[str, str]]()
        made = Optimizer(key, kind, params, call, path.loops, owned=owned)
        self.machine.create(path, made)
        return made

    def _owned(self, node: ast.expr, path: Path, depth: int) -> Iterator[tuple[str, str]]:
        """The modules that an optimizer is given all parameters of."""
        if isinstance(node, (ast.List, ast.Tuple)):
            for item in node.elts:
                yield from self._owned(item, path, depth)
        elif isinstance(node, ast.Starred):
            yield from self._owned(node.value, path, depth)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from self._owned(node.left, path, depth)
            yield from self._owned(node.right, path, depth)
        elif isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == "params":
                    yield from self._owned(value, path, depth)
        elif isinstance(node, ast.Call):
            yield from self._owned_by_call(node, path, depth)
        elif isinstance(node, ast.Name) and depth < _DEEPEST:
            view = self.file(path)
            values = view.assignments(view.function(node) or view.tree).get(node.id, ())
            if len(values) == 1 and values[0] is not None and node.id not in self.facts(path).grown:
                yield from self._owned(values[0], path, depth + 1)

    def _owned_by_call(self, node: ast.Call, path: Path, depth: int) -> Iterator[tuple[str, str]]:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "parameters" and not node.args:
            yield self.text(node.func.value, path), self.value(node.func.value, path).key
        elif last_name(node.func) in ("list", "tuple", "chain"):
            for arg in node.args:
                yield from self._owned(arg, path, depth)

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
        if isinstance(dtype, Opaque) and dtype.half:
            return Region(f"region{id(call)}", "float16", True, enabled, node, chosen=True)
        return Region(f"region{id(call)}", named, True, enabled, node)

    @abc.abstractmethod
    def _unresolved(self, call: ast.Call, func: Value, path: Path) -> list[Path]:
        """A call of something that is not here."""


def _device(value: Value | None) -> str | None:
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value.partition(":")[0]
    return None
