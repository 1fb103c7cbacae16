"""What a call does: functions of the project are walked into, classes make instances, modules run their layers."""

from __future__ import annotations

import abc
import ast
from dataclasses import replace

from mixprec.lint.dtypes._call import Call, as_tensor
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._layers import CONTAINERS, LAYERS, weight_of
from mixprec.lint.dtypes._library import Library
from mixprec.lint.dtypes._methods import Arguments, Keywords, grown
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
    Tensor,
    Value,
    Wrapped,
    element,
)
from mixprec.lint.dtypes.ops import CASTS, OPS

__all__ = ["Calls"]

MODULES = frozenset(
    {"BaseModel", "BaseModule", "LightningModule", "ModelMixin", "Module", "PreTrainedModel", "PyTorchModelHubMixin"}
)
"""Last names of the library classes whose subclasses are modules."""

_FUNCTIONS = frozenset({"torch.autograd.Function", "torch.autograd.function.Function"})
_ON_UNKNOWN = frozenset({"bmm", "matmul", "mm"})


class Calls(Library):
    """Evaluates calls."""

    @abc.abstractmethod
    def walk(self, function: Function, args: Arguments, keywords: Keywords, node: ast.AST) -> Value:
        """Walk into a function of the project."""

    def call(self, node: ast.Call, frame: Frame) -> Value:
        """The value of a call expression."""
        self.state.step()
        if isinstance(node.func, ast.Attribute):
            inner = node.func.value
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super":
                return self._super(node, node.func.attr, frame)
            receiver = self.value(inner, frame)
            args, keywords = self._arguments(node, frame)
            return self._method_call(receiver, node.func, args, keywords, node, frame)
        function = self.value(node.func, frame)
        args, keywords = self._arguments(node, frame)
        if function is UNKNOWN:
            self.note("call", node, (UNKNOWN, *args), frame, keywords)
            return self.unknown_call(_last_name(node.func), args, keywords)
        return self.apply(function, args, keywords, node, frame)

    def _arguments(self, node: ast.Call, frame: Frame) -> tuple[Arguments, Keywords]:
        args: list[Value] = []
        for arg in node.args:
            value = self.value(arg, frame)
            if isinstance(arg, ast.Starred):
                args.extend(value.items if isinstance(value, Items) and value.items is not None else (_spread(value),))
            else:
                args.append(value)
        keywords: Keywords = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, frame)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
        return tuple(args), keywords

    def _method_call(
        self, receiver: Value, func: ast.Attribute, args: Arguments, keywords: Keywords, node: ast.Call, frame: Frame
    ) -> Value:
        """`receiver.name(...)`, with what it does to the variable that holds the receiver."""
        if receiver is UNKNOWN:
            return self._on_unknown(func, args, keywords, node, frame)
        if isinstance(receiver, Items):
            more = grown(receiver, func.attr, args, not self.state.branch and not self.looping)
            if more is not None:
                self.rebind(func.value, more, frame)
                return NONE
        value = self.apply(self.member(receiver, func.attr, node, frame), args, keywords, node, frame)
        if func.attr.endswith("_") and isinstance(receiver, Tensor) and isinstance(value, Tensor):
            self.rebind(func.value, value, frame)
        return value

    @property
    def looping(self) -> bool:
        """Whether the walk is inside a loop whose length is open."""
        return False

    def rebind(self, node: ast.expr, value: Value, frame: Frame) -> None:
        """Note what an in-place change made of a variable; of another place nothing is noted."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            self.bind(node, value, frame)

    def _on_unknown(
        self, func: ast.Attribute, args: Arguments, keywords: Keywords, node: ast.Call, frame: Frame
    ) -> Value:
        """A method of something unknown: conversions and, in a region, matrix products still say something."""
        name = func.attr
        if name == "from_pretrained":
            return self.library("from_pretrained", args, keywords, node, frame)
        if name in CASTS or name in _ON_UNKNOWN:
            return self.op_method(UNKNOWN, name, args, keywords, node, frame)
        if name.rstrip("_") in OPS and any(as_tensor(arg) is not None for arg in args):
            self.op_method(UNKNOWN, name, args, keywords, node, frame)
            return UNKNOWN
        self.note("call", node, (UNKNOWN, *args), frame, keywords)
        return self.unknown_call(name, args, keywords)

    def apply(self, function: Value, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        """The result of calling a value."""
        if isinstance(function, Function):
            return self.walk(function, args, keywords, node)
        if isinstance(function, Class):
            return self._construct(function, args, keywords, node, frame)
        if isinstance(function, (Instance, Wrapped)):
            return self.call_module(function, args, keywords, node, frame)
        if isinstance(function, Known):
            return self.library(function.name, args, keywords, node, frame)
        if isinstance(function, Method):
            return self._apply_method(function, args, keywords, node, frame)
        if isinstance(function, Partial):
            return self.apply(
                function.function, (*function.args, *args), {**dict(function.keywords), **keywords}, node, frame
            )
        if isinstance(function, Choice):
            return self._each(function, lambda option: self.apply(option, args, keywords, node, frame))
        return UNKNOWN

    def _apply_method(self, method: Method, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        receiver = method.receiver
        if isinstance(receiver, Instance) and receiver.cls is not None and not is_module(receiver):
            return self.unknown_call(method.name, args, keywords)
        return self.method(method, args, keywords, node, frame)

    # --- classes

    def _construct(self, cls: Class, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        instance = Instance(cls, _layer_of(cls), self.state.branch)
        init = self._of_class(cls, "__init__", instance)
        if isinstance(init, Function):
            self.walk(init, args, keywords, node)
        elif instance.layer is not None:
            self.init_layer(instance, instance.layer, args, keywords, node)
        else:
            for name, value in keywords.items():
                instance.attributes[name] = value
        return instance

    def _super(self, node: ast.Call, name: str, frame: Frame) -> Value:
        """`super().name(...)` inside a method."""
        args, keywords = self._arguments(node, frame)
        method = _enclosing_function(frame)
        owner = method.view.class_of(method.node) if method is not None else None
        me = method.values.get(_first_parameter(method.node)) if method is not None else None
        if method is None or owner is None or not isinstance(me, Instance) or me.cls is None:
            return UNKNOWN
        for base in _after(me.cls, owner):
            if isinstance(base, Class) and name in base.frame.values:
                found = base.frame.values[name]
                if isinstance(found, Function):
                    return self.walk(replace(found, bound=me), args, keywords, node)
                return UNKNOWN
            if isinstance(base, Known):
                return self._super_of_library(base.name, me, name, args, keywords, node, frame)
        return UNKNOWN

    def _super_of_library(
        self, base: str, me: Instance, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame
    ) -> Value:
        layer = base.rpartition(".")[2]
        if name == "__init__":
            if base.startswith("torch.nn.") and layer in {*LAYERS, *CONTAINERS}:
                self.init_layer(me, layer, args, keywords, node)
            return NONE
        if name in ("forward", "__call__") and me.layer is not None:
            return self._run_layer(me, args, keywords, node, frame)
        return self.module_method(me, name, args, keywords, node, frame) if is_module(me) else UNKNOWN

    # --- modules

    def call_module(
        self, module: Instance | Wrapped, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame
    ) -> Value:
        """Call a module: its forward, or the op of its layer."""
        if isinstance(module, Wrapped):
            self.note(f"{module.kind}.call", node, (module, *args), frame, keywords)
            before, region = self.state.products, self.state.region
            value = self.apply(module.inner, args, keywords, node, frame)
            if module.kind == "compile" and region.enabled and self.state.products > before:
                self.note("compile.islands", node, (module,), frame)
            return value
        forward = self._forward(module)
        if forward is not None:
            return self.walk(forward, args, keywords, node)
        if module.layer is not None:
            return self._run_layer(module, args, keywords, node, frame)
        return UNKNOWN

    def _forward(self, module: Instance) -> Function | None:
        if module.cls is None:
            return None
        for name in ("forward", "__call__"):
            found = module.attributes.get(name) or self._of_class(module.cls, name, module)
            if isinstance(found, Function):
                return found
        return None

    def _run_layer(self, module: Instance, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        if module.layer == "Sequential":
            value = args[0] if args else UNKNOWN
            for child in module.children:
                value = self.apply(child, (value,), {}, node, frame)
            return value
        layer = LAYERS.get(module.layer or "")
        if layer is None:
            return UNKNOWN
        if "reduction" in module.attributes:
            keywords = {"reduction": module.attributes["reduction"], **keywords}
        if not layer.weighted:
            call = Call(layer.op, node, self.state.region, args, keywords)
            return self.op(call, frame, module)
        return self._weighted(module, layer.op, args, keywords, node, frame)

    def _weighted(
        self, module: Instance, op: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame
    ) -> Value:
        """A layer with weights: embeddings give them out, products mix them in, normalisations follow the input."""
        weight, given = weight_of(module), args[0] if args else next(iter(keywords.values()), UNKNOWN)
        if weight is None:
            return UNKNOWN
        if op == "embedding":
            return Tensor(weight.dtypes, rank0=False, why=weight.why)
        if op in ("lstm", "gru", "rnn", "attention", "transformer"):
            return self._composite(op, given, weight, node, frame, module)
        if op.endswith("_norm"):
            tensor = as_tensor(given)
            self.note(op, node, (given, weight), frame, module=module)
            if tensor is None:
                return UNKNOWN
            if weight.low and tensor.only("float32") and self.state.region.enabled is False and op != "rms_norm":
                return Tensor(rank0=False)
            return self.op(Call(op, node, self.state.region, (tensor,)), frame)
        return self.op(Call(op, node, self.state.region, (given, weight)), frame, module)

    def _composite(self, op: str, given: Value, weight: Tensor, node: ast.AST, frame: Frame, module: Instance) -> Value:
        """Layers made of many ops; what autocast makes of recurrent ones differs by device."""
        self.note(op, node, (given, weight), frame, module=module)
        tensor, region = as_tensor(given), self.state.region
        dtypes = None if tensor is None else tensor.dtypes
        if region.enabled is not False:
            by_linear = op == "attention" or (op != "transformer" and region.device == "cuda")
            dtypes = region.dtypes if region.enabled and by_linear else None
        out = Tensor(dtypes, rank0=False)
        return out if op == "transformer" else Items((out, UNKNOWN))

    # --- autograd functions

    def apply_function(self, cls: Class, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        """`cls.apply(...)` of a torch.autograd.Function: forward here, and backward where the gradient comes from."""
        forward, backward = self._of_class(cls, "forward", None), self._of_class(cls, "backward", None)
        context = Instance(None, "context", self.state.branch)
        if not isinstance(forward, Function):
            return UNKNOWN
        value = self.walk(forward, (context, *args), keywords, node)
        outputs = value.items if isinstance(value, Items) and value.items is not None else (value,)
        if isinstance(backward, Function) and not _is_decorated(backward, "custom_bwd"):
            before = self.state.backward
            self.state.backward = True
            with self.state.inside(OFF(self.state.device)):
                self.walk(backward, (context, *outputs), {}, node)
            self.state.backward = before
        return value


def is_module(instance: Instance) -> bool:
    """Whether an instance is a torch.nn.Module, as far as its bases say."""
    if instance.cls is None:
        return True
    return instance.layer is not None or any(
        isinstance(base, Known) and base.name.rpartition(".")[2] in MODULES for base in instance.cls.ancestry()
    )


def is_autograd_function(cls: Class) -> bool:
    """Whether a class is a torch.autograd.Function."""
    return any(isinstance(base, Known) and base.name in _FUNCTIONS for base in cls.ancestry())


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
