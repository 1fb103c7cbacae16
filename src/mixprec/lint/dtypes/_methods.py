"""Methods that are not the project's: of tensors, modules, lists, optimizers and scalers."""

from __future__ import annotations

import abc
import ast
from dataclasses import replace

from mixprec.lint.dtypes._call import Call, dtype_value
from mixprec.lint.dtypes._expressions import Expressions
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._layers import convert, parameters, trained
from mixprec.lint.dtypes._region import OFF
from mixprec.lint.dtypes._values import (
    NONE,
    NUMBER,
    UNKNOWN,
    Class,
    Const,
    Context,
    Instance,
    Items,
    Method,
    Optimizer,
    Scaler,
    Table,
    Tag,
    Tensor,
    Value,
    Wrapped,
    element,
    join,
)
from mixprec.lint.dtypes.ops import CASTS, OPS
from mixprec.lint.dtypes.ops._casts import asked_dtypes

__all__ = ["Arguments", "Methods"]

Arguments = tuple[Value, ...]
Keywords = dict[str, Value]

_ITSELF = frozenset(
    {"compile", "cpu", "cuda", "eval", "requires_grad_", "share_memory", "to_empty", "train", "tie_weights", "xpu"}
)
_PARAMETERS = frozenset({"buffers", "named_buffers", "named_parameters", "parameters"})
_NUMBERS = frozenset({"dim", "element_size", "item", "ndimension", "nelement", "numel", "get_device"})
_STARTS = frozenset({"apply_async", "imap", "map", "starmap", "submit"})
_READS = frozenset({"numpy", "tolist", "item"})
_INITIALISED = frozenset(
    {"bernoulli_", "copy_", "exponential_", "normal_", "random_", "trunc_normal_", "uniform_", "zero_"}
)


class Methods(Expressions):
    """Calls of methods by the kind of their receiver."""

    def method(self, value: Method, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        """`value.receiver.name(...)`."""
        receiver = value.receiver
        if isinstance(receiver, Tensor):
            return self.tensor_method(receiver, value.name, args, keywords, node, frame)
        if isinstance(receiver, (Instance, Wrapped)):
            return self.module_method(receiver, value.name, args, keywords, node, frame)
        if isinstance(receiver, Items):
            return _items_method(receiver, value.name, args)
        if isinstance(receiver, Table):
            return _table_method(receiver, value.name, args)
        if isinstance(receiver, Scaler):
            return self._scaler_method(receiver, value.name, args, keywords, node, frame)
        if isinstance(receiver, Optimizer):
            self.note(f"optimizer.{value.name}", node, (receiver, trained(receiver), *args), frame, keywords)
            return UNKNOWN
        if isinstance(receiver, Class):
            return self.apply_function(receiver, args, keywords, node, frame)
        if isinstance(receiver, Context) and receiver.kind == "threads" and value.name in _STARTS:
            return self.in_thread(args, node, frame)
        return UNKNOWN

    @abc.abstractmethod
    def in_thread(self, args: Arguments, node: ast.AST, frame: Frame) -> Value:
        """A function that runs in another thread, where no autocast of this thread is on."""

    @abc.abstractmethod
    def apply_function(self, cls: Class, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        """`cls.apply(...)` of a torch.autograd.Function."""

    # --- tensors

    def tensor_method(
        self, tensor: Tensor, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame
    ) -> Value:
        """A method of a tensor, which may be an op; of something that may be a module it may be a module's."""
        if Tag.MAYBE_MODULE in tensor.tags:
            if name in _PARAMETERS:
                return Items(None, replace(tensor, tags=frozenset({Tag.PARAMETER})), tensor)
            if name in _ITSELF:
                return tensor
        if name in _READS:
            self.note(name, node, (tensor, *args), frame, keywords)
        if name in _NUMBERS:
            return NUMBER
        if name in _READS:
            return UNKNOWN
        if name == "size":
            return NUMBER if args else Items(None, NUMBER)
        if name in _INITIALISED:
            self.note(name.rstrip("_"), node, (tensor, *args), frame, keywords, tensor, inplace=True)
            return replace(tensor, bounds=type(tensor.bounds)(), tags=tensor.tags & {Tag.PARAMETER, Tag.BUFFER})
        return self.op_method(tensor, name, args, keywords, node, frame)

    def op_method(
        self, receiver: Value, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame
    ) -> Value:
        """A method that is an op: `x.exp()`, `x.addmm_(...)`."""
        inplace = name.endswith("_") and not name.endswith("__") and name not in OPS
        base = name[:-1] if inplace else name
        call = Call(base, node, self.state.region, (receiver, *args), keywords, inplace)
        value = self.op(call, frame)
        if inplace and isinstance(receiver, Tensor):
            return replace(value, dtypes=receiver.dtypes) if isinstance(value, Tensor) else receiver
        return value

    # --- modules

    def module_method(
        self, module: Value, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame
    ) -> Value:
        """A method that torch.nn.Module has."""
        if name in CASTS:
            call = Call(name, node, self.state.region, (module, *args), keywords)
            asks, dtypes = asked_dtypes(call)
            if asks:
                convert(self.state, module, dtypes, node)
                self.note("convert", node, (module, dtype_value(dtypes)), frame)
            return module
        if name in _ITSELF:
            return module
        if name in _PARAMETERS:
            return self._parameters(module, name)
        if name == "register_comm_hook" and len(args) > 1:
            self.note(name, node, (module, *args), frame, keywords)
            bucket = Instance(None, "bucket", self.state.branch)
            with self.state.inside(OFF(self.state.device)):
                self.apply(args[1], (args[0], bucket), {}, node, frame)
            return NONE
        return self._holding_method(module, name, args, keywords)

    def _parameters(self, module: Value, name: str) -> Value:
        found = parameters(module)
        one: Value = UNKNOWN if found is None else found
        return Items(None, Items((UNKNOWN, one)) if name.startswith("named_") else one, module)

    def _holding_method(self, module: Value, name: str, args: Arguments, keywords: Keywords) -> Value:
        """Methods that put something into a module."""
        inner = module.inner if isinstance(module, Wrapped) else module
        if not isinstance(inner, Instance):
            return UNKNOWN
        if name == "buffer" and inner.layer == "bucket":
            return Tensor(frozenset({"float32"}), rank0=False, tags=frozenset({Tag.GRADIENT}))
        if name == "save_for_backward":
            inner.attributes["saved_tensors"] = Items(args)
            self.state.version += 1
            return NONE
        if name in ("register_buffer", "register_parameter", "add_module", "register_module"):
            self._register(inner, name, args, keywords)
            return NONE
        if name in ("append", "extend", "insert") and args:
            added = args[-1]
            new = added.items if name == "extend" and isinstance(added, Items) and added.items is not None else (added,)
            inner.children = (*inner.children, *new)
            self.state.version += 1
            return inner
        if name in ("children", "modules", "values"):
            return Items(inner.children) if name != "modules" and inner.children else Items(None)
        return UNKNOWN

    def _register(self, module: Instance, method: str, args: Arguments, keywords: Keywords) -> None:
        given = {**dict(zip(("name", "tensor"), args, strict=False)), **keywords}
        name, value = given.get("name"), given.get("tensor", given.get("param", given.get("module", UNKNOWN)))
        if not isinstance(name, Const) or not isinstance(name.value, str):
            return
        tag = Tag.BUFFER if method == "register_buffer" else Tag.PARAMETER
        if isinstance(value, Tensor):
            value = replace(value, tags=value.tags | {tag})
        self.state.assign(module, name.value, value)

    def _scaler_method(
        self, scaler: Scaler, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame
    ) -> Value:
        about = tuple(trained(arg) if isinstance(arg, Optimizer) else arg for arg in args)
        self.note(f"scaler.{name}", node, (scaler, *args, *about), frame, keywords)
        if name == "scale" and args:
            return args[0]
        return NUMBER if name == "get_scale" else UNKNOWN


def _items_method(items: Items, name: str, args: Arguments) -> Value:
    if name in ("copy", "__iter__"):
        return items
    if name == "pop":
        return element(items)
    return UNKNOWN


def grown(items: Items, name: str, args: Arguments, certain: bool) -> Items | None:
    """The list after `append`, `extend` or `insert`; None for another method."""
    if name not in ("append", "extend", "insert") or not args:
        return None
    added = args[-1]
    if name == "extend":
        more = added if isinstance(added, Items) else Items(None)
        if certain and items.items is not None and more.items is not None:
            return Items((*items.items, *more.items))
        return Items(None, _together(items, element(more)))
    if certain and items.items is not None and len(items.items) < 8:
        return Items((*items.items, added))
    return Items(None, _together(items, added))


def _together(items: Items, value: Value) -> Value:
    return value if items.items == () else join(element(items), value)


def _table_method(entries: Table, name: str, args: Arguments) -> Value:
    values = tuple(value for _, value in entries.items)
    if name == "items":
        return Items(tuple(Items((Const(key), value)) for key, value in entries.items))
    if name == "values":
        return Items(values)
    if name == "keys":
        return Items(tuple(Const(key) for key, _ in entries.items))
    if name == "get" and args and isinstance(args[0], Const):
        found = entries.get(args[0].value)
        return found if found is not None else (args[1] if len(args) > 1 else NONE)
    return UNKNOWN
