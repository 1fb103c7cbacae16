"""What a name and an attribute stand for: a variable, something of the project, a library's, or a tensor's property."""

from __future__ import annotations

import abc
import ast
import builtins
from collections.abc import Callable
from dataclasses import replace

from mixprec.lint._constants import DTYPES, Dtype
from mixprec.lint._view import FileView
from mixprec.lint.dtypes._call import dtype_value
from mixprec.lint.dtypes._comparing import truth_of
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._joins import join
from mixprec.lint.dtypes._layers import weight_of
from mixprec.lint.dtypes._state import State
from mixprec.lint.dtypes._values import (
    DEVICE,
    NONE,
    NUMBER,
    UNKNOWN,
    Autocast,
    Choice,
    Class,
    Const,
    Context,
    Function,
    Instance,
    Items,
    Known,
    Method,
    Optimizer,
    Partial,
    Scaler,
    Table,
    Tag,
    Tensor,
    Value,
    Wrapped,
)

__all__ = ["Names", "sizes"]

_SHAPES = frozenset({"dim", "itemsize", "nbytes", "ndim"})
_TRANSPOSED = frozenset({"H", "T", "data", "mH", "mT", "real", "imag"})

_LIBRARIES = frozenset(
    {
        "accelerate",
        "apex",
        "collections",
        "contextlib",
        "copy",
        "datasets",
        "deepspeed",
        "einops",
        "functools",
        "itertools",
    }
    | {"lightning", "logging", "math", "numpy", "os", "pytorch_lightning", "random", "sys", "time", "timm", "torch"}
    | {"torchvision", "tqdm", "transformers", "typing", "wandb"}
)
_INTEGER_DTYPES = {
    "bool": "bool",
    "int": "int32",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "int8": "int8",
    "long": "int64",
    "short": "int16",
    "uint8": "uint8",
}
_CONSTANTS = {"math.inf": float("inf"), "math.pi": 3.141592653589793, "math.e": 2.718281828459045}
_CONSTANTS |= {
    "torch.inf": float("inf"),
    "torch.pi": 3.141592653589793,
    "numpy.inf": float("inf"),
    "numpy.pi": 3.14159265358979,
}
_CONSTANTS |= {"math.nan": float("nan"), "torch.nan": float("nan"), "numpy.nan": float("nan")}


class Names(abc.ABC):
    """Looks up names in frames and attributes of values."""

    def __init__(self, view: FileView, device: str) -> None:
        self.state = State(view, device)
        self.modules: dict[str, Frame] = {}

    @abc.abstractmethod
    def call(self, node: ast.Call, frame: Frame) -> Value:
        """The value of a call."""

    @abc.abstractmethod
    def value(self, node: ast.expr | None, frame: Frame) -> Value:
        """The value of an expression."""

    @abc.abstractmethod
    def apply(self, function: Value, given: Given) -> Value:
        """The result of calling a value."""

    @abc.abstractmethod
    def module_frame(self, view: FileView) -> Frame:
        """The names of another file of the project, after its statements ran."""

    def truth(self, node: ast.expr, frame: Frame) -> bool | None:
        """Whether a test holds; None where the run decides."""
        return truth_of(self.value(node, frame))

    @abc.abstractmethod
    def bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """`target = value`."""

    def _name(self, node: ast.Name, frame: Frame) -> Value:
        found = frame.find(node.id)
        if found is not None:
            return found
        dotted = frame.view.imported(node)
        if dotted is not None:
            return self.known(dotted, frame)
        return Known(node.id) if hasattr(builtins, node.id) else UNKNOWN

    def known(self, dotted: str, frame: Frame) -> Value:
        """What a dotted name stands for: something of the project, a dtype, or a name of a library."""
        if dotted.startswith("torch.") and dotted[6:] in DTYPES:
            return Const(Dtype(DTYPES[dotted[6:]]))
        if dotted.startswith("torch.") and dotted[6:] in _INTEGER_DTYPES:
            return Const(Dtype(_INTEGER_DTYPES[dotted[6:]]))
        if dotted in _CONSTANTS:
            return Const(_CONSTANTS[dotted])
        if dotted.split(".")[0] in _LIBRARIES:
            return Known(dotted)
        definition = frame.view.project.definition(dotted, frame.view.path)
        if definition is None:
            return Known(dotted)
        view, name = definition
        return self.module_frame(view).find(name) or Known(dotted)

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        return self.member(self.value(node.value, frame), node.attr, node, frame)

    def member(self, value: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        """`value.name`."""
        if isinstance(value, Choice):
            return self._each(value, lambda option: self.member(option, name, node, frame))
        if isinstance(value, Known):
            return self.known(f"{value.name}.{name}", frame)
        if isinstance(value, Tensor):
            return self._of_tensor(value, name)
        if isinstance(value, Instance):
            return self.of_instance(value, name, node, frame)
        if isinstance(value, Wrapped):
            return value.inner if name == "module" else self.member(value.inner, name, node, frame)
        if isinstance(value, Class):
            return self._of_class(value, name, None) or Method(value, name)
        if isinstance(value, Table) and value.get(name) is not None:
            return value.get(name) or UNKNOWN
        if (
            isinstance(value, Items)
            and name in ("values", "indices")
            and value.items is not None
            and len(value.items) == 2
        ):
            return value.items[name == "indices"]
        if isinstance(value, (Items, Table, Optimizer, Scaler, Autocast, Context, Const, Partial, Method)):
            return Method(value, name)
        return UNKNOWN

    def _each(self, choice: Choice, do: Callable[[Value], Value]) -> Value:
        """`do` for every value that is possible, None left aside: where it is None, nothing happens."""
        found: Value | None = None
        for option in choice.values:
            if option != NONE:
                result = do(option)
                found = result if found is None else join(found, result)
        return UNKNOWN if found is None else found

    def _of_tensor(self, tensor: Tensor, name: str) -> Value:
        if name == "dtype":
            return dtype_value(tensor.dtypes)
        if name == "device":
            return DEVICE
        if name == "shape":
            return sizes(tensor)
        if name in _SHAPES:
            return NUMBER
        if name in _TRANSPOSED:
            tags = tensor.tags - {Tag.LEARNED} if name == "data" else tensor.tags
            return replace(tensor, tags=tags, shape=tensor.shape if name in ("data", "real") else None)
        if name == "grad":
            return Tensor(tensor.dtypes, tags=frozenset({Tag.GRADIENT}), why=tensor.why)
        return Method(tensor, name)

    def of_instance(self, instance: Instance, name: str, node: ast.AST, frame: Frame) -> Value:
        """An attribute, a method of the project's class, or one that the library provides."""
        if name in instance.attributes:
            return instance.attributes[name]
        if instance.cls is not None:
            found = self._of_class(instance.cls, name, instance)
            if found is not None:
                if isinstance(found, Function) and _is_property(found):
                    return self.apply(found, Given(node, frame))
                return found
        if name in ("weight", "bias"):
            weight = weight_of(instance)
            if weight is not None:
                return weight
        return Method(instance, name)

    def _of_class(self, cls: Class, name: str, instance: Instance | None) -> Value | None:
        """`name` in the class or its bases, bound to `instance`."""
        for base in cls.ancestry():
            if isinstance(base, Class) and name in base.frame.values:
                value = base.frame.values[name]
                if isinstance(value, Function) and instance is not None and not _is_static(value):
                    return replace(value, bound=instance)
                if isinstance(value, Function) and _is_static(value, "classmethod"):
                    return replace(value, bound=cls)
                return value
        return None


def _decorators(function: Function) -> list[str]:
    nodes = getattr(function.node, "decorator_list", [])
    return [ast.unparse(node).rpartition(".")[2] for node in nodes]


def _is_static(function: Function, kind: str = "staticmethod") -> bool:
    return kind in _decorators(function)


def _is_property(function: Function) -> bool:
    return bool({"property", "cached_property"} & set(_decorators(function)))


def sizes(tensor: Tensor) -> Items:
    """`tensor.shape`, as far as it is known."""
    if tensor.shape is None:
        return Items(None, NUMBER)
    return Items(tuple(NUMBER if size is None else Const(size) for size in tensor.shape))
