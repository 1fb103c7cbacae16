"""What ran is a list of events in order; everything the audit says is computed from such lists afterwards.

A tensor is known by its storage: views of one storage are one piece of memory, and a storage keeps its number for as
long as it lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Union

from mixprec.records import Location

__all__ = [
    "Asked",
    "Event",
    "Freed",
    "Held",
    "Kind",
    "Mark",
    "Op",
    "Phase",
    "Product",
    "Ref",
    "Saved",
    "Step",
    "Storage",
    "Sync",
    "is_half",
    "width",
]


class Phase(str, Enum):
    """When an op ran."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Kind(str, Enum):
    """What memory is held for."""

    WEIGHT = "weights"
    MASTER = "master copies"
    GRADIENT = "gradients"
    STATE = "optimizer state"
    BUFFER = "buffers"
    CAST = "cached 16-bit casts of weights"
    SAVED = "saved for backward"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor as an op met it. `bytes` is elements times their width, whatever the storage behind it holds."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    expanded: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product `batch` times (m × k) @ (k × n); a convolution is the product that it is lowered to.

    `aligned` are the dimensions whose multiples matter to matrix units: m, n and k, for a convolution its channels.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    aligned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Op:
    """One op below autograd. `func` is what the script called (`linear`), `low` the region's dtype, "" outside.

    `made` are the storages that are new with it. `seconds` is what the call took on the host, on a CPU the work itself.
    `sequence` is autograd's number of the forward op, and the same number on the ops that compute its gradient.
    `workspaces` are the bytes of its last result, which a library keeps for backward, by dtype.
    """

    name: str
    func: str
    phase: Phase
    module: str
    cls: str
    location: Location
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    made: tuple[int, ...] = ()
    flops: int = 0
    product: Product | None = None
    low: str = ""
    region: int = 0
    seconds: float = 0.0
    explicit: bool = False
    factory: bool = False
    sequence: int = -1
    workspaces: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """Autograd kept a tensor for backward; `output` tells that it is the result of the op before it."""

    ref: Ref
    module: str
    func: str
    output: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The script asked for a dtype that the tensor had already; in another precision this is a cast."""

    storage: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Freed:
    """The last reference to a storage went away."""

    storage: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The host asked for a value; `by_script` unless a library's own code did (`GradScaler.step`)."""

    what: str
    location: Location
    phase: Phase
    in_module: str
    by_script: bool
    storage: int = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """A boundary: `forward` (a model was called), `backward` (it is over), `step` (an optimizer stepped), `region`.

    `inner step` and `inner stepped` are those of an optimizer that another one steps; at `clock` the script reads the
    time, at `synchronize` it waits for the device. A region's `dtype` is "" where it is disabled, "island" where it is
    disabled inside an enabled one.
    """

    what: str
    location: Location = field(default_factory=Location)
    held: tuple[Held, ...] = ()
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """Memory with an owner: a weight, a gradient, a piece of optimizer state."""

    kind: Kind
    name: str
    ref: Ref


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory. `before` tells that it was there before anything was recorded."""

    bytes: int
    device: str
    dtype: str
    shape: tuple[int, ...]
    before: bool = False


Event = Union[Op, Saved, Asked, Freed, Sync, Mark]  # noqa: UP007 # `|` between classes fails on Python 3.10 with slots


@dataclass(frozen=True)
class Step:
    """The events of one training step (or one forward pass), and the storages that they speak of.

    `held` says who owns which storage, `alive` which storages existed when the step began, `earlier` who owned
    storages before.
    """

    events: tuple[Event, ...]
    storages: dict[int, Storage]
    held: tuple[Held, ...] = ()
    alive: frozenset[int] = frozenset()
    earlier: tuple[Held, ...] = ()

    def ops(self, *phases: Phase) -> Iterator[Op]:
        """The ops in order, of the given phases or of all."""
        return (e for e in self.events if isinstance(e, Op) and (not phases or e.phase in phases))

    @property
    def saved(self) -> Iterator[Saved]:
        """What autograd kept, in order."""
        return (e for e in self.events if isinstance(e, Saved))

    @property
    def syncs(self) -> Iterator[Sync]:
        """Where the host waited."""
        return (e for e in self.events if isinstance(e, Sync))

    @property
    def marks(self) -> Iterator[Mark]:
        """The boundaries inside the step."""
        return (e for e in self.events if isinstance(e, Mark))

    @property
    def low(self) -> str:
        """The 16-bit dtype of the step's autocast regions; "" where nothing ran in one."""
        return next((op.low for op in self.ops() if op.low), "")


_WIDTHS = {"float64": 8, "complex64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def width(dtype: str) -> int:
    """Bytes of one element of a floating-point dtype; 0 for every other dtype."""
    return _WIDTHS.get(dtype, 0)


def is_half(dtype: str) -> bool:
    """Whether it is one of the two 16-bit floating-point dtypes."""
    return dtype in ("float16", "bfloat16")
