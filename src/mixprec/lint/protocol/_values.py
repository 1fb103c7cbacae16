"""What an expression can be for the scaler protocol: a scaler, an optimizer, a region, a tensor with its scale.

Values are immutable. `key` identifies a value on one path: equal keys, equal values.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mixprec.lint.protocol._conditions import TRUE, Formula

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = [
    "Class",
    "Const",
    "Context",
    "Function",
    "Instance",
    "Items",
    "Known",
    "Logic",
    "Mark",
    "Opaque",
    "Optimizer",
    "Partial",
    "Region",
    "Scaler",
    "Scheduler",
    "Table",
    "Value",
]


@dataclass(frozen=True)
class Mark:
    """A loss scale: whose, and after how many updates of this iteration."""

    scaler: str
    version: int


@dataclass(frozen=True)
class Opaque:
    """Anything: what is known of it is its taint.

    `mark`: it is multiplied by that scale. `unsure`: it may be. `scale`: it is that scale, read as a number
    (`inverse`: its reciprocal). `number`: read back from the device. `region`: made in that autocast region.
    `divisors`: keys it was divided by. `cut`: cut off from the graph, and by what. `outside`: an argument that only
    the caller knows. `gradient`: the gradient of a parameter. `modulo`: a remainder, true where it is not 0. `bases`:
    keys of the loop variables that it is computed from. `data`: a tensor that is nobody's result. `half`: a dtype that
    was looked up, float16 by default or where it has 16 bits.
    """

    key: str
    volatile: bool = False
    mark: Mark | None = None
    unsure: bool = False
    scale: Mark | None = None
    inverse: bool = False
    number: bool = False
    region: Region | None = None
    divisors: frozenset[str] = frozenset()
    cut: str | None = None
    outside: bool = False
    gradient: bool = False
    modulo: bool = False
    bases: frozenset[str] = frozenset()
    data: bool = False
    half: bool = False
    notable: bool = field(init=False, compare=False, repr=False, default=False)

    def __post_init__(self) -> None:
        taints = self.mark or self.unsure or self.scale or self.region or self.cut or self.gradient
        object.__setattr__(self, "notable", bool(taints))

    @property
    def plain(self) -> bool:
        """Whether nothing about it matters to the protocol."""
        return not self.notable


@dataclass(frozen=True)
class Const:
    """A Python value, a `Dtype` or None, the same in every run."""

    value: Any

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return repr(self.value)


@dataclass(frozen=True)
class Logic:
    """A truth value that is a formula over open tests."""

    formula: Formula

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return repr(self.formula)


@dataclass(frozen=True)
class Scaler:
    """A gradient scaler. `made`: where, None for one that came from outside. `loops`: the iterations it was made in.

    `picked`: one of several, and which one the run decides.
    """

    key: str
    enabled: Formula = TRUE
    made: ast.AST | None = field(default=None, compare=False)
    loops: tuple[tuple[int, int], ...] = ()
    function: ast.AST | None = field(default=None, compare=False)
    picked: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Optimizer:
    """An optimizer. `kind` is the class's last name, `params` the key of what it was given the parameters of.

    `owned`: how the text writes each module whose parameters it has, all of them, with the key of that module.
    """

    key: str
    kind: str = ""
    params: str | None = None
    made: ast.AST | None = field(default=None, compare=False)
    loops: tuple[tuple[int, int], ...] = ()
    outside: bool = False
    owned: frozenset[tuple[str, str]] = field(default=frozenset(), compare=False)


@dataclass(frozen=True)
class Scheduler:
    """A learning-rate scheduler of the optimizer with key `optimizer`, where that is known."""

    key: str
    optimizer: str | None = None


@dataclass(frozen=True)
class Region:
    """An autocast region. `dtype` is None where it is open, `explicit` whether the script names it.

    `chosen`: an option decides, and the region has that dtype if it has 16 bits, or by default.
    """

    key: str
    dtype: str | None
    explicit: bool
    enabled: Formula = TRUE
    node: ast.AST | None = field(default=None, compare=False)
    chosen: bool = False


@dataclass(frozen=True)
class Context:
    """Another context that matters: `no_grad`, `join`, or `nothing`."""

    kind: str
    node: ast.AST | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return self.kind


@dataclass(frozen=True)
class Function:
    """A function of this project, with the frames it closes over and the instance it is bound to.

    `raw`: without what its decorators make of it.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    view: FileView = field(compare=False)
    chain: tuple[int, ...]
    bound: Instance | None = None
    raw: bool = False

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return f"def:{self.view.path}:{self.node.lineno}:{self.node.col_offset}"


@dataclass(frozen=True)
class Class:
    """A class of this project."""

    node: ast.ClassDef
    view: FileView = field(compare=False)
    chain: tuple[int, ...]

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return f"class:{self.view.path}:{self.node.lineno}"


@dataclass(frozen=True)
class Instance:
    """An object of a class of this project. `made`: its constructor was walked, so its attributes are known."""

    key: str
    cls: Class
    made: bool = False


@dataclass(frozen=True)
class Items:
    """A tuple or list whose items are known."""

    items: tuple[Value, ...]

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return "(" + ",".join(item.key for item in self.items) + ")"


@dataclass(frozen=True)
class Table:
    """A dict whose items are known, by constant key."""

    items: tuple[tuple[Any, Value], ...]

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return "{" + ",".join(f"{name!r}:{item.key}" for name, item in self.items) + "}"


@dataclass(frozen=True)
class Known:
    """A name of a library: `torch.autocast`."""

    name: str

    @property
    def key(self) -> str:
        """Its identity on a path."""
        return self.name


@dataclass(frozen=True)
class Partial:
    """`functools.partial(function, *args, **kwargs)`."""

    function: Value
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = field(default_factory=dict, hash=False)
    node: ast.AST | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """Its identity on a path."""
        inside = [a.key for a in self.args] + [f"{k}={v.key}" for k, v in self.kwargs.items()]
        return f"partial({self.function.key},{','.join(inside)})"


Value = (
    Opaque
    | Const
    | Logic
    | Scaler
    | Optimizer
    | Scheduler
    | Region
    | Context
    | Function
    | Class
    | Instance
    | Items
    | Table
    | Known
    | Partial
)
