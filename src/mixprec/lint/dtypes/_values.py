"""What an expression can be: a tensor with the dtypes it can have, a module, an optimizer, a region, a Python value.

All values are immutable but `Instance`, which has an identity as objects do. `UNKNOWN` is everything else.
"""

from __future__ import annotations

import ast
import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from mixprec.lint.dtypes._bounds import ANY, Bounds
from mixprec.lint.dtypes._dtypes import Dtypes, is_low

if TYPE_CHECKING:
    from mixprec.lint._view import FileView
    from mixprec.lint.dtypes._frame import Frame

__all__ = [
    "DEVICE",
    "NONE",
    "NO_TAGS",
    "NUMBER",
    "UNKNOWN",
    "Autocast",
    "Choice",
    "Class",
    "Const",
    "Context",
    "Function",
    "Instance",
    "Items",
    "Known",
    "Method",
    "Optimizer",
    "Partial",
    "Scaler",
    "Symbol",
    "Table",
    "Tag",
    "Tensor",
    "Value",
    "Wrapped",
    "number_of",
    "options",
    "settled",
]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Tag(str, enum.Enum):
    """What is known of a tensor beside its dtype. A tensor has a tag only where it surely holds."""

    ACCUMULATOR = "made as zeros with a few elements"
    BUFFER = "a buffer of a module"
    DIVIDED = "already divided"
    GRADIENT = "the gradient of parameters"
    LEARNED = "computed from parameters, with gradients on"
    MAYBE_MODULE = "a tensor or a module, made half"
    MIN_MASK = "holds finfo.min where it masks"
    NOISE = "drawn at random"
    NORMALISED = "of unit variance or unit length"
    PARAMETER = "a parameter"
    POSITION = "integers that count"
    REACHES_ONE = "a probability that can round to 1"
    REACHES_ZERO = "a probability that can round to 0"
    PROMOTED = "lifted to float32 by an operand that was"
    UPCAST = "converted from 16 bits to float32 by the script"
    WRITTEN_FLOAT = "converted to float32 by the script, from something else"
    VANISHED = "a constant added to it rounded to nothing"
    ZEROED = "exactly 0 wherever it was cut off at 0"


NO_TAGS: frozenset[Tag] = frozenset()
_ASKED = frozenset({Tag.UPCAST, Tag.WRITTEN_FLOAT})
Shape = tuple[int | None, ...] | None


@dataclass(frozen=True)
class Tensor:
    """A tensor. `rank0`: whether it has no dimensions, None where open. `shape`: its sizes, None for open ones.

    `why` says in words where a 16-bit dtype comes from, `origin` is the call that made the tensor, `constant` the
    number that vanished in it.
    """

    dtypes: Dtypes = None
    bounds: Bounds = ANY
    rank0: bool | None = None
    tags: frozenset[Tag] = NO_TAGS
    constant: float | None = None
    shape: Shape = None
    why: str = field(default="", compare=False)
    origin: ast.AST | None = field(default=None, compare=False)

    @property
    def low(self) -> bool:
        """Whether it has 16 bits in every run."""
        return is_low(self.dtypes)

    @property
    def half(self) -> bool:
        """Whether it has 16 bits in every run and is float16 in some."""
        return self.dtypes is not None and is_low(self.dtypes) and "float16" in self.dtypes

    def only(self, dtype: str) -> bool:
        """Whether its dtype is `dtype` in every run."""
        return self.dtypes == frozenset({dtype})


@dataclass(frozen=True)
class Const:
    """A Python value, a `Dtype` or None, the same in every run."""

    value: Any

    def __hash__(self) -> int:
        return hash((type(self.value).__name__, repr(self.value)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and repr(self.value) == repr(other.value)


class Symbol(enum.Enum):
    """Values of which only the kind is known."""

    UNKNOWN = "unknown"
    NUMBER = "a Python number"
    DEVICE = "a device"
    LEAST = "torch.finfo(...).min"


UNKNOWN: Final = Symbol.UNKNOWN
NUMBER: Final = Symbol.NUMBER
DEVICE: Final = Symbol.DEVICE
NONE = Const(None)


@dataclass(frozen=True)
class Known:
    """A name of a library or a builtin: `torch.autocast`, `len`."""

    name: str


@dataclass(frozen=True)
class Items:
    """A tuple, list or iterable. `items` None: any number of `element`. `owner`: whose parameters they are."""

    items: tuple[Value, ...] | None
    element: Value = UNKNOWN
    owner: Value | None = None


@dataclass(frozen=True)
class Table:
    """A dict whose items are known, by constant key. `element`: what stands under any other key; None where nothing."""

    items: tuple[tuple[Any, Value], ...]
    element: Value | None = None

    def get(self, key: Any) -> Value | None:
        """The item under `key`."""
        return next((value for name, value in self.items if type(name) is type(key) and name == key), None)


@dataclass(frozen=True)
class Function:
    """A function of this project with the frame it closes over and what it is bound to."""

    node: FunctionNode = field(compare=False)
    view: FileView = field(compare=False)
    frame: Frame = field(compare=False)
    bound: Value | None = None

    def __hash__(self) -> int:
        return hash((id(self.node), id(self.frame), self.bound))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Function)
            and self.node is other.node
            and self.frame is other.frame
            and self.bound == other.bound
        )


@dataclass(frozen=True)
class Class:
    """A class of this project."""

    node: ast.ClassDef = field(compare=False)
    view: FileView = field(compare=False)
    frame: Frame = field(compare=False)
    bases: tuple[Value, ...] = ()

    def __hash__(self) -> int:
        return hash(id(self.node))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Class) and self.node is other.node

    def ancestry(self) -> Iterator[Class | Known]:
        """The class and its bases, as far as they are known; each once."""
        seen: list[Value] = []
        waiting: list[Value] = [self]
        while waiting:
            current = waiting.pop(0)
            if current in seen or not isinstance(current, (Class, Known)):
                continue
            seen.append(current)
            yield current
            if isinstance(current, Class):
                waiting.extend(current.bases)


class Instance:
    """An object. `cls`: of a class of the project; `layer`: of a layer of torch.nn (both for a subclass of one).

    `dtypes` is that of the layer's own weights, `converted` and `source` say how and where they got 16 bits; `branch`
    are the open branches in which it was made.
    """

    __slots__ = ("attributes", "branch", "children", "cls", "converted", "dtypes", "layer", "source")

    def __init__(self, cls: Class | None, layer: str | None, branch: tuple[int, ...]) -> None:
        self.cls = cls
        self.layer = layer
        self.branch = branch
        self.attributes: dict[str, Value] = {}
        self.children: tuple[Value, ...] = ()
        self.dtypes: Dtypes = frozenset({"float32"})
        self.converted = ""
        self.source: ast.AST | None = None


@dataclass(frozen=True)
class Wrapped:
    """A module inside a wrapper: `compile`, `DataParallel`, or another `kind`."""

    inner: Value
    kind: str
    node: ast.AST | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Method:
    """A method that is not the project's: `name` of `receiver`."""

    receiver: Value
    name: str


@dataclass(frozen=True)
class Partial:
    """A function with some arguments given."""

    function: Value
    args: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Autocast:
    """An autocast context. `device` None: decided by the run. `enabled` None: a flag that the run decides."""

    device: str | None
    dtypes: Dtypes
    enabled: bool | None = True
    cache: bool | None = None
    node: ast.AST | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Context:
    """Another context: `no_grad`, `grad`, or `nothing` that matters."""

    kind: str


@dataclass(frozen=True)
class Optimizer:
    """An optimizer of torch.optim, or the project's `own`.

    `parameters` stands for all of its parameters; `options` are its arguments.
    """

    name: str
    parameters: Value
    options: tuple[tuple[str, Value], ...] = ()
    node: ast.AST | None = field(default=None, compare=False)
    own: bool = False

    def option(self, name: str) -> Value | None:
        """The argument called `name`, where it was given."""
        return dict(self.options).get(name)


@dataclass(frozen=True)
class Scaler:
    """A gradient scaler. `enabled` None: a flag that the run decides."""

    enabled: bool | None = True
    sharded: bool = False
    node: ast.AST | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Choice:
    """One of a few values; which one, the run decides."""

    values: tuple[Value, ...]


Value = (
    Tensor
    | Const
    | Symbol
    | Known
    | Items
    | Table
    | Function
    | Class
    | Instance
    | Wrapped
    | Method
    | Partial
    | Autocast
    | Context
    | Optimizer
    | Scaler
    | Choice
)


def options(value: Value) -> tuple[Value, ...]:
    """The values that `value` can be."""
    return value.values if isinstance(value, Choice) else (value,)


def settled(value: Value) -> Value:
    """`value` where a call has taken it or given it: that it was converted to float32 was not for what comes next."""
    if isinstance(value, Tensor):
        return replace(value, tags=value.tags - _ASKED) if value.tags & _ASKED else value
    if isinstance(value, Items) and value.items is not None:
        return replace(value, items=tuple(settled(item) for item in value.items))
    if isinstance(value, Choice):
        return Choice(tuple(settled(option) for option in value.values))
    return value


def number_of(value: Value) -> float | None:
    """The finite Python number that `value` is; None where it is none or open. True and False are none."""
    if isinstance(value, Const) and isinstance(value.value, (int, float)) and not isinstance(value.value, bool):
        try:
            number = float(value.value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None
