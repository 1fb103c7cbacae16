"""Methods that are not the project's: of tensors, modules, lists, optimizers and scalers."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import replace

from mixprec.lint.dtypes._bounds import ANY
from mixprec.lint.dtypes._call import Call, dtype_value
from mixprec.lint.dtypes._dtypes import FLOAT32
from mixprec.lint.dtypes._expressions import Expressions
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._joins import element, join
from mixprec.lint.dtypes._layers import convert, every_module, parameters, submodules, trained
from mixprec.lint.dtypes._names import sizes
from mixprec.lint.dtypes._region import OFF
from mixprec.lint.dtypes._values import (
    NONE,
    NUMBER,
    UNKNOWN,
    Class,
    Const,
    Context,
    Function,
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
    number_of,
)
from mixprec.lint.dtypes.ops import CASTS, OPS
from mixprec.lint.dtypes.ops._casts import asked_dtypes

__all__ = ["Arguments", "Methods", "grown"]

Arguments = tuple[Value, ...]

_ITSELF = frozenset(
    {"compile", "cpu", "cuda", "eval", "requires_grad_", "share_memory", "to_empty", "train", "tie_weights", "xpu"}
)
_PARAMETERS = frozenset({"buffers", "named_buffers", "named_parameters", "parameters"})
_MODULES = frozenset({"children", "modules", "named_children", "named_modules"})
_NUMBERS = frozenset({"dim", "element_size", "item", "ndimension", "nelement", "numel", "get_device"})
_REGISTERS = frozenset({"add_module", "register_buffer", "register_module", "register_parameter"})
_STARTS = frozenset({"apply_async", "imap", "map", "starmap", "submit"})
_READS = frozenset({"numpy", "tolist", "item"})
_INITIALISED = frozenset(
    {"bernoulli_", "copy_", "exponential_", "normal_", "random_", "trunc_normal_", "uniform_", "zero_"}
)


class Methods(Expressions):
    """Calls of methods by the kind of their receiver."""

    def method(self, value: Method, given: Given) -> Value:
        """`value.receiver.name(...)`."""
        receiver, name = value.receiver, value.name
        if isinstance(receiver, Tensor):
            return self.tensor_method(receiver, name, given)
        if isinstance(receiver, (Instance, Wrapped)):
            return self.module_method(receiver, name, given)
        if isinstance(receiver, Items):
            return _items_method(receiver, name)
        if isinstance(receiver, Table):
            return _table_method(receiver, name, given)
        if isinstance(receiver, Scaler):
            return self._scaler_method(receiver, name, given)
        if isinstance(receiver, Optimizer):
            self.note(f"optimizer.{name}", given.with_args(receiver, trained(receiver), *given.args))
            return UNKNOWN
        if isinstance(receiver, Class):
            return self.apply_function(receiver, given)
        if isinstance(receiver, Context) and receiver.kind == "threads" and name in _STARTS:
            return self.in_thread(given)
        return UNKNOWN

    @abc.abstractmethod
    def in_thread(self, given: Given) -> Value:
        """A function, the first argument, that runs in another thread, where no autocast of this one is on."""

    @abc.abstractmethod
    def apply_function(self, cls: Class, given: Given) -> Value:
        """`cls.apply(...)` of a torch.autograd.Function."""

    # --- tensors

    def tensor_method(self, tensor: Tensor, name: str, given: Given) -> Value:
        """A method of a tensor, which may be an op; of something that may be a module it may be a module's."""
        if Tag.MAYBE_MODULE in tensor.tags:
            if name in _PARAMETERS:
                return Items(None, replace(tensor, tags=frozenset({Tag.PARAMETER})), tensor)
            if name in _ITSELF:
                return tensor
        if name in _READS:
            self.note(name, replace(given, args=(tensor, *given.args)))
        if name in _NUMBERS:
            return NUMBER
        if name in _READS:
            return UNKNOWN
        if name == "size":
            return _size(tensor, given)
        if name in _INITIALISED:
            self.note(name.rstrip("_"), replace(given, args=(tensor, *given.args)), tensor, inplace=True)
            return replace(tensor, bounds=ANY, tags=tensor.tags & {Tag.PARAMETER, Tag.BUFFER})
        return self.op_method(tensor, name, given)

    def op_method(self, receiver: Value, name: str, given: Given) -> Value:
        """A method that is an op: `x.exp()`, `x.addmm_(...)`."""
        inplace = name.endswith("_") and not name.endswith("__") and name not in OPS
        base = name[:-1] if inplace else name
        call = Call(base, given.node, self.state.region, (receiver, *given.args), given.keywords, inplace)
        value = self.op(call, given.frame)
        if inplace and isinstance(receiver, Tensor):
            return replace(value, dtypes=receiver.dtypes) if isinstance(value, Tensor) else receiver
        return value

    # --- modules

    def module_method(self, module: Value, name: str, given: Given) -> Value:
        """A method that torch.nn.Module has."""
        if name in CASTS:
            call = Call(name, given.node, self.state.region, (module, *given.args), given.keywords)
            asks, dtypes = asked_dtypes(call)
            if asks:
                convert(self.state, module, dtypes, given.node)
                self.note("convert", given.with_args(module, dtype_value(dtypes)))
            return module
        if name in _ITSELF:
            return module
        if name in _PARAMETERS:
            return self._parameters(module, name)
        if name == "register_comm_hook" and len(given.args) > 1:
            self.note(name, replace(given, args=(module, *given.args)))
            bucket = Instance(None, "bucket", self.state.branch)
            with self.state.inside(OFF(self.state.device)):
                self.apply(given.args[1], given.with_args(given.args[0], bucket))
            return NONE
        return self._holding_method(module, name, given)

    def _parameters(self, module: Value, name: str) -> Value:
        found = parameters(module)
        one: Value = UNKNOWN if found is None else found
        return Items(None, Items((UNKNOWN, one)) if name.startswith("named_") else one, module)

    def _holding_method(self, module: Value, name: str, given: Given) -> Value:
        """Methods that put something into a module or take it out."""
        inner = module.inner if isinstance(module, Wrapped) else module
        if not isinstance(inner, Instance):
            return UNKNOWN
        if name == "buffer" and inner.layer == "bucket":
            return Tensor(FLOAT32, rank0=False, tags=frozenset({Tag.GRADIENT}))
        if name == "save_for_backward":
            self.state.assign(inner, "saved_tensors", Items(given.args))
            return NONE
        if name in _REGISTERS:
            self._register(inner, name, given)
            return NONE
        if name in ("append", "extend", "insert") and given.args:
            added = given.args[-1]
            new = added.items if name == "extend" and isinstance(added, Items) and added.items is not None else (added,)
            inner.children = (*inner.children, *new)
            self.state.version += 1
            return inner
        if name in ("items", "values") and inner.children:
            return _listed(inner.children, named=name == "items")
        if name in _MODULES:
            below = submodules(inner)
            every = every_module(inner) if "modules" in name else below
            return _listed(every, named=name.startswith("named_")) if below else Items(None)
        if name == "state_dict":
            one = parameters(inner)
            known = isinstance(one, Tensor) and one.dtypes is not None
            return Table((), replace(one, tags=frozenset())) if known and isinstance(one, Tensor) else UNKNOWN
        if name == "apply" and given.args and isinstance(given.args[0], Function):
            for one in reversed(every_module(inner)):
                self.apply(given.args[0], given.with_args(one))
            return module
        return UNKNOWN

    def _register(self, module: Instance, method: str, given: Given) -> None:
        what = given.named("name", "tensor")
        name, value = what.get("name"), what.get("tensor", what.get("param", what.get("module", UNKNOWN)))
        if not isinstance(name, Const) or not isinstance(name.value, str):
            return
        tag = Tag.BUFFER if method == "register_buffer" else Tag.PARAMETER
        if isinstance(value, Tensor):
            value = replace(value, tags=value.tags | {tag})
        self.state.assign(module, name.value, value)

    def _scaler_method(self, scaler: Scaler, name: str, given: Given) -> Value:
        about = tuple(trained(arg) if isinstance(arg, Optimizer) else arg for arg in given.args)
        self.note(f"scaler.{name}", replace(given, args=(scaler, *given.args, *about)))
        if name == "scale" and given.args:
            return given.args[0]
        return NUMBER if name == "get_scale" else UNKNOWN


def _listed(modules: Iterable[Value], named: bool) -> Items:
    """Modules as a loop goes through them, with or without their names."""
    return Items(tuple(Items((UNKNOWN, one)) if named else one for one in modules))


def _size(tensor: Tensor, given: Given) -> Value:
    """`tensor.size()` or `tensor.size(dim)`."""
    every, place = sizes(tensor), given.get(0, "dim", NONE)
    if place == NONE:
        return every
    number = number_of(place)
    known = every.items is not None and number is not None and -len(every.items) <= number < len(every.items)
    return every.items[int(number)] if known and every.items is not None and number is not None else NUMBER


def _items_method(items: Items, name: str) -> Value:
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


def _table_method(entries: Table, name: str, given: Given) -> Value:
    if entries.element is not None and not entries.items:
        named = {"items": Items(None, Items((UNKNOWN, entries.element))), "values": Items(None, entries.element)}
        return named.get(name, entries.element if name in ("get", "pop", "setdefault") else UNKNOWN)
    values = tuple(value for _, value in entries.items)
    if name == "items":
        return Items(tuple(Items((Const(key), value)) for key, value in entries.items))
    if name == "values":
        return Items(values)
    if name == "keys":
        return Items(tuple(Const(key) for key, _ in entries.items))
    key = given.get(0)
    if name == "get" and isinstance(key, Const):
        found = entries.get(key.value)
        return found if found is not None else given.get(1, default=NONE)
    return UNKNOWN
