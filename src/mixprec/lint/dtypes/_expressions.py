"""What an expression is worth. Names, attributes, arithmetic and comparisons are here; calls are in `_calls`."""

from __future__ import annotations

import abc
import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mixprec.lint._constants import DTYPES, Dtype, evaluate
from mixprec.lint._constants import UNKNOWN as OPEN_CONSTANT
from mixprec.lint._view import FileView
from mixprec.lint.dtypes._bounds import Bounds
from mixprec.lint.dtypes._call import Call, as_tensor, dtype_value
from mixprec.lint.dtypes._dtypes import one
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._layers import weight_of
from mixprec.lint.dtypes._state import Event, State
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
    Symbol,
    Table,
    Tag,
    Tensor,
    Value,
    Wrapped,
    element,
    join,
    number_of,
    options,
    table,
)
from mixprec.lint.dtypes.ops import operate

__all__ = ["Expressions"]

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.MatMult: "matmul",
    ast.Mod: "remainder",
    ast.Mult: "mul",
    ast.Pow: "pow",
    ast.Sub: "sub",
}
_SHAPES = frozenset({"dim", "itemsize", "nbytes", "ndim"})
_TRANSPOSED = frozenset({"H", "T", "data", "mH", "mT", "real", "imag"})
_TRUTHS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: a is b or a == b,
    ast.IsNot: lambda a, b: not (a is b or a == b),
}
_MOST_UNROLLED = 8


class Expressions(abc.ABC):
    """Evaluates expressions in a frame."""

    def __init__(self, view: FileView, device: str) -> None:
        self.state = State(view, device)
        self._modules: dict[str, Frame] = {}
        self._table: dict[type[ast.expr], Callable[[Any, Frame], Value]] = {
            ast.Attribute: self._attribute,
            ast.Await: lambda node, frame: self.value(node.value, frame),
            ast.BinOp: self._binary,
            ast.BoolOp: self._boolean,
            ast.Call: self.call,
            ast.Compare: self._compare,
            ast.Constant: lambda node, frame: Const(node.value),
            ast.Dict: self._dict,
            ast.DictComp: self._dict_comprehension,
            ast.FormattedValue: lambda node, frame: self.value(node.value, frame),
            ast.GeneratorExp: self._comprehension,
            ast.IfExp: self._if,
            ast.JoinedStr: self._text,
            ast.Lambda: lambda node, frame: Function(node, frame.view, frame),
            ast.List: self._items,
            ast.ListComp: self._comprehension,
            ast.Name: self._name,
            ast.NamedExpr: self._named,
            ast.Set: self._items,
            ast.SetComp: self._comprehension,
            ast.Starred: lambda node, frame: self.value(node.value, frame),
            ast.Subscript: self._subscript,
            ast.Tuple: self._items,
            ast.UnaryOp: self._unary,
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield,
        }

    @abc.abstractmethod
    def call(self, node: ast.Call, frame: Frame) -> Value:
        """The value of a call."""

    @abc.abstractmethod
    def apply(
        self, function: Value, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST, frame: Frame
    ) -> Value:
        """The result of calling a value."""

    @abc.abstractmethod
    def module_frame(self, view: FileView) -> Frame:
        """The names of another file of the project, after its statements ran."""

    @abc.abstractmethod
    def bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """`target = value`."""

    def value(self, node: ast.expr | None, frame: Frame) -> Value:
        """The value of an expression."""
        if node is None:
            return NONE
        evaluate_node = self._table.get(type(node))
        return UNKNOWN if evaluate_node is None else evaluate_node(node, frame)

    def truth(self, node: ast.expr, frame: Frame) -> bool | None:
        """Whether a test holds; None where the run decides."""
        return truth_of(self.value(node, frame))

    # --- names and attributes

    def _name(self, node: ast.Name, frame: Frame) -> Value:
        found = frame.find(node.id)
        if found is not None:
            return found
        dotted = frame.view.imports.get(node.id)
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
            return Items(None, NUMBER)
        if name in _SHAPES:
            return NUMBER
        if name in _TRANSPOSED:
            return tensor
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
                    return self.apply(found, (), {}, node, frame)
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

    # --- displays

    def _items(self, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Value:
        found: list[Value] = []
        for item in node.elts:
            value = self.value(item, frame)
            if isinstance(item, ast.Starred):
                if not isinstance(value, Items) or value.items is None:
                    rest = join(element(value), _common(found)) if isinstance(value, Items) and found else value
                    return Items(None, element(rest) if isinstance(rest, Items) else rest)
                found.extend(value.items)
            else:
                found.append(value)
        return Items(tuple(found))

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        found: dict[Any, Value] = {}
        complete = True
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, frame)
            name = self.value(key, frame) if key is not None else UNKNOWN
            if isinstance(name, Const) and isinstance(name.value, (str, int)):
                found[name.value] = value
            else:
                complete = False
        return table(found) if complete else UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Value:
        inner = Frame(frame.view, node, frame)
        sources = [
            self.value(generator.iter, frame if place == 0 else inner)
            for place, generator in enumerate(node.generators[:1])
        ]
        first = node.generators[0]
        source = self.iterated(sources[0])
        if (
            len(node.generators) == 1
            and not first.ifs
            and source.items is not None
            and len(source.items) <= _MOST_UNROLLED
        ):
            found = []
            for item in source.items:
                self.bind(first.target, item, inner)
                found.append(self.value(node.elt, inner))
            return Items(tuple(found))
        self._bind_generators(node.generators, source, inner)
        return Items(None, self.value(node.elt, inner))

    def _dict_comprehension(self, node: ast.DictComp, frame: Frame) -> Value:
        inner = Frame(frame.view, node, frame)
        self._bind_generators(node.generators, self.iterated(self.value(node.generators[0].iter, frame)), inner)
        self.value(node.value, inner)
        return UNKNOWN

    def _bind_generators(self, generators: list[ast.comprehension], source: Items, inner: Frame) -> None:
        for place, generator in enumerate(generators):
            items = source if place == 0 else self.iterated(self.value(generator.iter, inner))
            self.bind(generator.target, element(items), inner)
            for test in generator.ifs:
                self.value(test, inner)

    def iterated(self, value: Value) -> Items:
        """What a loop over `value` goes through."""
        if isinstance(value, Items):
            return value
        if isinstance(value, Tensor):
            return Items(None, replace(value, rank0=None))
        if isinstance(value, Instance) and value.children:
            return Items(value.children)
        if isinstance(value, Table):
            return Items(tuple(Const(key) for key, _ in value.items))
        if isinstance(value, Const) and isinstance(value.value, str):
            return Items(None)
        if isinstance(value, Choice):
            parts = [self.iterated(option) for option in value.values if option != NONE]
            joined = parts[0] if parts else Items(None)
            for part in parts[1:]:
                both = join(joined, part)
                joined = both if isinstance(both, Items) else Items(None)
            return joined
        return Items(None)

    def _text(self, node: ast.JoinedStr, frame: Frame) -> Value:
        for part in node.values:
            self.value(part, frame)
        return UNKNOWN

    def _named(self, node: ast.NamedExpr, frame: Frame) -> Value:
        value = self.value(node.value, frame)
        self.bind(node.target, value, frame)
        return value

    def _yield(self, node: ast.Yield | ast.YieldFrom, frame: Frame) -> Value:
        value = self.value(node.value, frame)
        frame.yields.append(element(self.iterated(value)) if isinstance(node, ast.YieldFrom) else value)
        return UNKNOWN

    def _if(self, node: ast.IfExp, frame: Frame) -> Value:
        test = self.truth(node.test, frame)
        if test is not None:
            return self.value(node.body if test else node.orelse, frame)
        with self.state.open_branch():
            first = self.value(node.body, frame)
        with self.state.open_branch():
            second = self.value(node.orelse, frame)
        return join(first, second)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        value = self.value(node.value, frame)
        place = UNKNOWN if isinstance(node.slice, ast.Slice) else self.value(node.slice, frame)
        return self.item(value, place, node)

    def item(self, value: Value, place: Value, node: ast.Subscript) -> Value:
        """`value[place]`."""
        if isinstance(value, Choice):
            return self._each(value, lambda option: self.item(option, place, node))
        if isinstance(value, Tensor):
            return replace(value, rank0=False if isinstance(node.slice, ast.Slice) else None)
        if isinstance(value, Instance) and value.children:
            return self.item(Items(value.children), place, node)
        if isinstance(value, Items):
            return _item_of(value, place, node)
        if isinstance(value, Table):
            return _entry_of(value, place)
        return UNKNOWN

    # --- operators

    def _binary(self, node: ast.BinOp, frame: Frame) -> Value:
        first, second = self.value(node.left, frame), self.value(node.right, frame)
        value = self.combine(node.op, first, second, node, frame)
        if isinstance(value, Tensor) and isinstance(node.op, ast.Sub) and _subtracts_maximum(node):
            return replace(value, bounds=Bounds(high=0.0))
        return value

    def combine(
        self, operator: ast.operator, first: Value, second: Value, node: ast.AST, frame: Frame, inplace: bool = False
    ) -> Value:
        """`first operator second`."""
        name = _OPERATORS.get(type(operator))
        if name is not None and (_may_be_tensor(first) or _may_be_tensor(second) or name == "matmul"):
            return self.op(Call(name, node, self.state.region, (first, second), inplace=inplace), frame)
        if isinstance(first, Const) and isinstance(second, Const):
            return _constant(operator, first, second)
        if isinstance(first, Items) and isinstance(second, Items) and isinstance(operator, ast.Add):
            if first.items is not None and second.items is not None:
                return Items((*first.items, *second.items))
            return Items(None, join(element(first), element(second)))
        if Symbol.LEAST in (first, second) and isinstance(operator, (ast.Mult, ast.Div)):
            return NUMBER
        numeric = all(value is NUMBER or number_of(value) is not None for value in (first, second))
        return NUMBER if numeric else UNKNOWN

    def op(self, call: Call, frame: Frame, module: Instance | None = None) -> Value:
        """Run an op on values and note that it ran."""
        self.state.step()
        value = operate(call)
        if self.state.region.enabled is False and call.name in _PRODUCTS:
            self.state.products += 1
        self.note(call.name, call.node, call.args, frame, call.keywords, value, call.inplace, module)
        return value

    def note(
        self,
        op: str,
        node: ast.AST,
        args: tuple[Value, ...],
        frame: Frame,
        keywords: Any = None,
        result: Value | None = None,
        inplace: bool = False,
        module: Instance | None = None,
    ) -> None:
        """Note an event."""
        state = self.state
        event = Event(
            op, node, state.region, args, keywords or {}, result, inplace, state.no_grad, state.backward, module
        )
        state.emit(event, frame.view)

    def _unary(self, node: ast.UnaryOp, frame: Frame) -> Value:
        value = self.value(node.operand, frame)
        if isinstance(node.op, ast.Not):
            known = truth_of(value)
            return UNKNOWN if known is None else Const(not known)
        if isinstance(node.op, ast.Invert):
            return value if isinstance(value, Tensor) else UNKNOWN
        if isinstance(value, Tensor):
            return (
                value
                if isinstance(node.op, ast.UAdd)
                else self.op(Call("neg", node, self.state.region, (value,)), frame)
            )
        if isinstance(value, Const) and isinstance(value.value, (int, float)):
            return Const(-value.value) if isinstance(node.op, ast.USub) else value
        return NUMBER if value is NUMBER else UNKNOWN

    def _boolean(self, node: ast.BoolOp, frame: Frame) -> Value:
        """`and` and `or`: the first value that decides, joined with those before it that may."""
        decides = isinstance(node.op, ast.Or)
        left: Value | None = None
        for part in node.values:
            value = self.value(part, frame)
            known = truth_of(value)
            if known is decides:
                return value if left is None else join(left, value)
            if known is None or part is node.values[-1]:
                left = value if left is None else join(left, value)
        return UNKNOWN if left is None else left

    def _compare(self, node: ast.Compare, frame: Frame) -> Value:
        values = [self.value(part, frame) for part in (node.left, *node.comparators)]
        if any(isinstance(value, Tensor) for value in values) and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return Tensor(one("bool"), Bounds(0.0, 1.0))
        return _compared(node.ops[0], values[0], values[1]) if len(node.ops) == 1 else UNKNOWN


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
_PRODUCTS = frozenset({"addmm", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "linear", "matmul", "mm"})


def truth_of(value: Value) -> bool | None:
    """Whether `value` is true; None where that is open."""
    if isinstance(value, Const):
        return None if isinstance(value.value, Dtype) else bool(value.value)
    if isinstance(value, (Instance, Optimizer, Scaler, Autocast, Function, Class, Known, Wrapped)):
        return True
    if isinstance(value, Items) and value.items is not None:
        return bool(value.items)
    return None


def _may_be_tensor(value: Value) -> bool:
    return as_tensor(value) is not None


def _constant(operator: ast.operator, first: Const, second: Const) -> Value:
    expression = ast.BinOp(ast.Constant(first.value), operator, ast.Constant(second.value))
    found = evaluate(expression, lambda node: OPEN_CONSTANT)
    numeric = number_of(first) is not None and number_of(second) is not None
    return Const(found) if found is not OPEN_CONSTANT else (NUMBER if numeric else UNKNOWN)


def _compared(operator: ast.cmpop, first: Value, second: Value) -> Value:
    if isinstance(first, Items) or isinstance(second, Items):
        return _contains(operator, first, second)
    if isinstance(operator, (ast.Is, ast.IsNot)) and NONE in (first, second):
        other = second if first == NONE else first
        known = {True: True, False: False}.get(other == NONE) if isinstance(other, _NOT_NONE) or other == NONE else None
        return UNKNOWN if known is None else Const(known is isinstance(operator, ast.Is))
    if isinstance(first, Const) and isinstance(second, Const):
        try:
            return Const(_TRUTHS[type(operator)](first.value, second.value))
        except (TypeError, ValueError):
            return UNKNOWN
    return UNKNOWN


_NOT_NONE = (Tensor, Instance, Optimizer, Scaler, Autocast, Function, Class, Wrapped, Const)


def _contains(operator: ast.cmpop, first: Value, second: Value) -> Value:
    """`x in (a, b)` of constants."""
    if not isinstance(operator, (ast.In, ast.NotIn)) or not isinstance(second, Items) or second.items is None:
        return UNKNOWN
    if not isinstance(first, Const) or not all(isinstance(item, Const) for item in second.items):
        return UNKNOWN
    return Const((first in second.items) is isinstance(operator, ast.In))


def _common(values: Iterable[Value]) -> Value:
    found: Value | None = None
    for value in values:
        found = value if found is None else join(found, value)
    return UNKNOWN if found is None else found


def _item_of(items: Items, place: Value, node: ast.Subscript) -> Value:
    if isinstance(node.slice, ast.Slice):
        return _slice_of(items, node.slice)
    if items.items is not None and isinstance(place, Const) and isinstance(place.value, int):
        return items.items[place.value] if -len(items.items) <= place.value < len(items.items) else UNKNOWN
    return element(items)


def _slice_of(items: Items, part: ast.Slice) -> Value:
    ends = [part.lower, part.upper, part.step]
    if items.items is None or not all(end is None or isinstance(end, ast.Constant) for end in ends):
        return Items(None, element(items))
    places = [end.value if isinstance(end, ast.Constant) and isinstance(end.value, int) else None for end in ends]
    return Items(items.items[slice(*places)]) if places[2] != 0 else UNKNOWN


def _entry_of(entries: Table, place: Value) -> Value:
    found: Value | None = None
    if not all(isinstance(option, Const) for option in options(place)):
        return UNKNOWN
    for option in options(place):
        entry = entries.get(option.value) if isinstance(option, Const) else None
        if entry is None:
            return UNKNOWN
        found = entry if found is None else join(found, entry)
    return UNKNOWN if found is None else found


def _decorators(function: Function) -> list[str]:
    nodes = getattr(function.node, "decorator_list", [])
    return [ast.unparse(node).rpartition(".")[2] for node in nodes]


def _is_static(function: Function, kind: str = "staticmethod") -> bool:
    return kind in _decorators(function)


def _is_property(function: Function) -> bool:
    return bool({"property", "cached_property"} & set(_decorators(function)))


def _subtracts_maximum(node: ast.BinOp) -> bool:
    """`x - x.max(...)`, `x - x.amax(...)`, `x - torch.max(x, ...)[0]`, however detached."""
    left = ast.unparse(node.left)
    for inner in ast.walk(node.right):
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr in ("max", "amax", "logsumexp")
        ):
            subject = inner.func.value
            given = ast.unparse(inner.args[0]) if inner.args else ""
            if left in (ast.unparse(subject), given):
                return True
    return False
