"""What a call does: functions of the project are walked into, classes make instances, modules run their layers."""

from __future__ import annotations

import abc
import ast
from dataclasses import replace

from mixprec.lint.dtypes._call import Call, as_tensor
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._joins import element, table
from mixprec.lint.dtypes._layers import CONTAINERS, LAYERS, is_module, weight_of
from mixprec.lint.dtypes._library import Library, is_own_optimizer
from mixprec.lint.dtypes._methods import grown
from mixprec.lint.dtypes._region import OFF
from mixprec.lint.dtypes._values import (
    NONE,
    UNKNOWN,
    Choice,
    Class,
    Function,
    Instance,
    Items,
    Known,
    Method,
    Partial,
    Shape,
    Table,
    Tensor,
    Value,
    Wrapped,
    settled,
)
from mixprec.lint.dtypes.ops import CASTS, OPS

__all__ = ["Calls"]

_HARMLESS = frozenset({"append", "debug", "eval", "info", "print", "set_description", "train", "update", "zero_grad"})
_COMPOSITES = frozenset({"attention", "gru", "lstm", "rnn", "transformer"})
_ON_UNKNOWN = frozenset({"bmm", "matmul", "mm"})


class Calls(Library):
    """Evaluates calls."""

    @abc.abstractmethod
    def walk(self, function: Function, given: Given) -> Value:
        """Walk into a function of the project."""

    def call(self, node: ast.Call, frame: Frame) -> Value:
        """The value of a call expression. What gives something unknown may do anything, also in a region."""
        value = self._called(node, frame)
        self.state.effects += value is UNKNOWN and _last_name(node.func) not in _HARMLESS
        return value

    def _called(self, node: ast.Call, frame: Frame) -> Value:
        self.state.step()
        if isinstance(node.func, ast.Attribute):
            inner = node.func.value
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super":
                return self._super(node, node.func.attr, frame)
            receiver = self.value(inner, frame)
            return self._method_call(receiver, node.func, self._given(node, frame))
        function = self.value(node.func, frame)
        given = self._given(node, frame)
        if function is UNKNOWN:
            self.note("call", replace(given, args=(UNKNOWN, *given.args)))
            return self.unknown_call(_last_name(node.func), given)
        return self.apply(function, given)

    def _given(self, node: ast.Call, frame: Frame) -> Given:
        args: list[Value] = []
        for arg in node.args:
            value = self.value(arg, frame)
            if isinstance(arg, ast.Starred):
                args.extend(value.items if isinstance(value, Items) and value.items is not None else (_spread(value),))
            else:
                args.append(value)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, frame)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, Table):
                keywords |= {name: item for name, item in value.items if isinstance(name, str)}
        return Given(node, frame, tuple(args), keywords)

    def _method_call(self, receiver: Value, func: ast.Attribute, given: Given) -> Value:
        """`receiver.name(...)`, with what it does to the variable that holds the receiver."""
        if receiver is UNKNOWN:
            return self._on_unknown(func, given)
        if isinstance(receiver, Items):
            more = grown(receiver, func.attr, given.args, not self.state.branch and not self.looping)
            if more is not None:
                self.rebind(func.value, more, given.frame)
                return NONE
        if isinstance(receiver, Table) and func.attr == "update" and receiver.element is None:
            added = given.get(0) if given.args else Table(())
            if isinstance(added, Table) and added.element is None:
                self.rebind(
                    func.value, table({**dict(receiver.items), **dict(added.items), **given.keywords}), given.frame
                )
                return NONE
        value = self.apply(self.member(receiver, func.attr, given.node, given.frame), given)
        if func.attr.endswith("_") and isinstance(receiver, Tensor) and isinstance(value, Tensor):
            self.rebind(func.value, value, given.frame)
        return value

    @property
    def looping(self) -> bool:
        """Whether the walk is inside a loop whose length is open."""
        return False

    def rebind(self, node: ast.expr, value: Value, frame: Frame) -> None:
        """Note what an in-place change made of a variable; of another place nothing is noted."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            self.bind(node, value, frame)

    def _on_unknown(self, func: ast.Attribute, given: Given) -> Value:
        """A method of something unknown: conversions and, in a region, matrix products still say something."""
        name = func.attr
        if name == "from_pretrained":
            return self.library("from_pretrained", given)
        if name in CASTS or name in _ON_UNKNOWN:
            return self.op_method(UNKNOWN, name, given)
        if name.rstrip("_") in OPS and any(as_tensor(arg) is not None for arg in given.args):
            self.op_method(UNKNOWN, name, given)
            return UNKNOWN
        self.note("call", replace(given, args=(UNKNOWN, *given.args)))
        return self.unknown_call(name, given)

    def apply(self, function: Value, given: Given) -> Value:
        """The result of calling a value."""
        if isinstance(function, Function):
            return self.walk(function, given)
        if isinstance(function, Class):
            return self._construct(function, given)
        if isinstance(function, (Instance, Wrapped)):
            return self.call_module(function, given)
        if isinstance(function, Known):
            return self.library(function.name, given)
        if isinstance(function, Method):
            return self._apply_method(function, given)
        if isinstance(function, Partial):
            keywords = {**dict(function.keywords), **given.keywords}
            return self.apply(function.function, replace(given, args=(*function.args, *given.args), keywords=keywords))
        if isinstance(function, Choice):
            return self._each(function, lambda option: self.apply(option, given))
        return UNKNOWN

    def _apply_method(self, method: Method, given: Given) -> Value:
        receiver = method.receiver
        if isinstance(receiver, Instance) and receiver.cls is not None and not is_module(receiver):
            return self.unknown_call(method.name, given)
        return self.method(method, given)

    # --- classes

    def _construct(self, cls: Class, given: Given) -> Value:
        if is_own_optimizer(cls):
            return self.own_optimizer(cls, given)
        instance = Instance(cls, _layer_of(cls), self.state.branch)
        init = self._of_class(cls, "__init__", instance)
        if isinstance(init, Function):
            self.walk(init, given)
        elif instance.layer is not None:
            self.init_layer(instance, instance.layer, given)
        else:
            for name, value in given.keywords.items():
                instance.attributes[name] = value
        return instance

    def _super(self, node: ast.Call, name: str, frame: Frame) -> Value:
        """`super().name(...)` inside a method."""
        given = self._given(node, frame)
        method = _enclosing_function(frame)
        owner = method.view.class_of(method.node) if method is not None else None
        me = method.values.get(_first_parameter(method.node)) if method is not None else None
        if method is None or owner is None or not isinstance(me, Instance) or me.cls is None:
            return UNKNOWN
        for base in _after(me.cls, owner):
            if isinstance(base, Class) and name in base.frame.values:
                found = base.frame.values[name]
                if isinstance(found, Function):
                    return self.walk(replace(found, bound=me), given)
                return UNKNOWN
            if isinstance(base, Known):
                return self._super_of_library(base.name, me, name, given)
        return UNKNOWN

    def _super_of_library(self, base: str, me: Instance, name: str, given: Given) -> Value:
        layer = base.rpartition(".")[2]
        if name == "__init__":
            if base.startswith("torch.nn.") and layer in {*LAYERS, *CONTAINERS}:
                self.init_layer(me, layer, given)
            return NONE
        if name in ("forward", "__call__") and me.layer is not None:
            return self._run_layer(me, given)
        return self.module_method(me, name, given) if is_module(me) else UNKNOWN

    # --- modules

    def call_module(self, module: Instance | Wrapped, given: Given) -> Value:
        """Call a module: its forward, or the op of its layer."""
        if isinstance(module, Wrapped):
            self.note(f"{module.kind}.call", replace(given, args=(module, *given.args)))
            before, region = self.state.trained_products, self.state.region
            value = self.apply(module.inner, given)
            if module.kind == "compile" and region.enabled and self.state.trained_products > before:
                self.note("compile.islands", given.with_args(module))
            return value
        forward = self._forward(module)
        if forward is not None:
            return settled(self.walk(forward, given))
        if module.layer is not None:
            return self._run_layer(module, given)
        return UNKNOWN

    def _forward(self, module: Instance) -> Function | None:
        if module.cls is None:
            return None
        for name in ("forward", "__call__"):
            found = module.attributes.get(name) or self._of_class(module.cls, name, module)
            if isinstance(found, Function):
                return found
        return None

    def _run_layer(self, module: Instance, given: Given) -> Value:
        if module.layer == "Sequential":
            value = given.get(0, "input")
            for child in module.children:
                value = self.apply(child, given.with_args(value))
            return value
        layer = LAYERS.get(module.layer or "")
        if layer is None:
            return UNKNOWN
        if layer.weighted:
            return self._weighted(module, layer.op, given)
        reduction = module.attributes.get("reduction")
        keywords = given.keywords if reduction is None else {"reduction": reduction, **given.keywords}
        return self.op(Call(layer.op, given.node, self.state.region, given.args, keywords), given.frame, module)

    def _weighted(self, module: Instance, op: str, given: Given) -> Value:
        """A layer with weights: embeddings give them out, products mix them in, normalisations follow the input."""
        weight, value = weight_of(module), given.args[0] if given.args else next(iter(given.keywords.values()), UNKNOWN)
        if weight is None:
            return UNKNOWN
        both = given.with_args(value, weight)
        if op == "embedding":
            return Tensor(weight.dtypes, rank0=False, shape=_with_features(value, 0), why=weight.why)
        if op in _COMPOSITES:
            return self._composite(module, op, both)
        if op.endswith("_norm"):
            return self._normalised(module, op, both, weight)
        made = self.op(Call(op, given.node, self.state.region, both.args), given.frame, module)
        return replace(made, shape=_with_features(value, 1)) if op == "linear" and isinstance(made, Tensor) else made

    def _normalised(self, module: Instance, op: str, given: Given, weight: Tensor) -> Value:
        """A normalisation layer; with 16-bit weights and a float32 input it raises where autocast is off."""
        self.note(op, given, module=module)
        tensor = as_tensor(given.get(0))
        if tensor is None:
            return UNKNOWN
        if weight.low and tensor.only("float32") and self.state.region.enabled is False and op != "rms_norm":
            return Tensor(rank0=False)
        return self.op(Call(op, given.node, self.state.region, (tensor,)), given.frame)

    def _composite(self, module: Instance, op: str, given: Given) -> Value:
        """Layers made of many ops; what autocast makes of recurrent ones differs by device."""
        self.note(op, given, module=module)
        tensor, region = as_tensor(given.get(0)), self.state.region
        dtypes = None if tensor is None else tensor.dtypes
        if region.enabled is not False:
            by_linear = op == "attention" or (op != "transformer" and region.device == "cuda")
            dtypes = region.dtypes if region.enabled and by_linear else None
        out = Tensor(dtypes, rank0=False)
        return out if op == "transformer" else Items((out, UNKNOWN))

    # --- autograd functions

    def apply_function(self, cls: Class, given: Given) -> Value:
        """`cls.apply(...)` of a torch.autograd.Function: forward here, and backward where the gradient comes from."""
        forward, backward = self._of_class(cls, "forward", None), self._of_class(cls, "backward", None)
        context = Instance(None, "context", self.state.branch)
        if not isinstance(forward, Function):
            return UNKNOWN
        value = self.walk(forward, replace(given, args=(context, *given.args)))
        outputs = value.items if isinstance(value, Items) and value.items is not None else (value,)
        if isinstance(backward, Function) and not _is_decorated(backward, "custom_bwd"):
            before, self.state.backward = self.state.backward, True
            with self.state.inside(OFF(self.state.device)):
                self.walk(backward, given.with_args(context, *outputs))
            self.state.backward = before
        return value


def _with_features(value: Value, replaced: int) -> Shape:
    """The shape of a layer's output: that of its input, with features as a last dimension, or in place of it."""
    tensor = as_tensor(value)
    if tensor is None or tensor.shape is None or len(tensor.shape) < replaced:
        return None
    return (*tensor.shape[: len(tensor.shape) - replaced], None)


def _layer_of(cls: Class) -> str | None:
    for base in cls.ancestry():
        if isinstance(base, Known) and base.name.startswith("torch.nn."):
            name = base.name.rpartition(".")[2]
            if name in {*LAYERS, *CONTAINERS}:
                return name
    return None


def _after(cls: Class, owner: ast.ClassDef) -> list[Class | Known]:
    line = list(cls.ancestry())
    place = next((i for i, base in enumerate(line) if isinstance(base, Class) and base.node is owner), -1)
    return line[place + 1 :] if place >= 0 else []


def _enclosing_function(frame: Frame) -> Frame | None:
    current: Frame | None = frame
    while current is not None:
        if isinstance(current.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return current
        current = current.parent
    return None


def _first_parameter(node: ast.AST) -> str:
    args = getattr(node, "args", None)
    every = [*args.posonlyargs, *args.args] if isinstance(args, ast.arguments) else []
    return every[0].arg if every else ""


def _is_decorated(function: Function, name: str) -> bool:
    nodes = getattr(function.node, "decorator_list", [])
    return any(name in ast.unparse(node) for node in nodes)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _spread(value: Value) -> Value:
    return element(value) if isinstance(value, Items) else UNKNOWN
