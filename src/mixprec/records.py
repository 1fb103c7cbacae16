"""What mixprec finds and reports is one of these records, whoever finds it; terminal, JSON, SARIF and HTML only render.

Records are immutable, need nothing but the standard library, and turn into JSON with `to_json`. Additions to the
JSON are allowed within a schema version; renames and removals are not.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = [
    "SCHEMA",
    "Confidence",
    "Edit",
    "Evidence",
    "Finding",
    "Fix",
    "Location",
    "OpRecord",
    "Severity",
    "StepReason",
    "StepReport",
    "StepValues",
    "TensorStats",
    "Verdict",
    "to_json",
]

SCHEMA = 1
"""Version of every JSON document that mixprec writes."""

T = TypeVar("T")


class Severity(str, enum.Enum):
    """How much a finding matters: an error breaks training, a warning costs quality or speed, info is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Confidence(str, enum.Enum):
    """How far a verdict was tested."""

    CONFIRMED = "confirmed by control"
    CONSISTENT = "consistent with"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Location:
    """Where: a place in a file (1-based line and column; in a notebook, in the `cell` counted from 1), a module path,
    an op; what is unknown is None.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    module: str | None = None
    op: str | None = None
    cell: int | None = None


@dataclass(frozen=True)
class Edit:
    """Replace the text between two places (1-based lines, 1-based columns in characters, end exclusive) by `text`."""

    start_line: int
    start_column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Fix:
    """What to change, in words and as edits. `safe` means: a strict bug fix that can be applied unattended."""

    text: str
    safe: bool = False
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """One measured fact: what was measured, its value and unit, and the arm and step it comes from."""

    what: str
    value: float | int | str | bool | None
    unit: str = ""
    arm: str | None = None
    step: int | None = None


@dataclass(frozen=True)
class Finding:
    """One thing found. `code` is the cause (`mixprec explain CODE`), `name` its kebab-case name."""

    code: str
    name: str
    severity: Severity
    message: str
    location: Location = field(default_factory=Location)
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None


@dataclass(frozen=True)
class Verdict(Finding):
    """A finding that experiments led to, with what they ruled out and what the tried fix did."""

    confidence: Confidence = Confidence.UNTESTED
    ruled_out: tuple[Evidence, ...] = ()
    fix_tried: Evidence | None = None


@dataclass(frozen=True)
class TensorStats:
    """What one tensor held. Counts are elements; `amax` is the largest finite magnitude, 0 where there is none, and
    `amin` the smallest finite magnitude that is not 0, 0 where there is none. `negative_infs` are among `infs`.
    """

    dtype: str
    shape: tuple[int, ...]
    numel: int
    zeros: int = 0
    subnormals: int = 0
    infs: int = 0
    nans: int = 0
    amax: float = 0.0
    amin: float = 0.0
    negative_infs: int = 0

    @property
    def finite(self) -> bool:
        """Whether every element is finite."""
        return self.infs == 0 and self.nans == 0


@dataclass(frozen=True)
class OpRecord:
    """One op as it ran: where, in which phase (`forward`, `recompute`, `backward`, `optimizer`), from what to what.

    `index` counts ops from 0; `names` are the operands' names in the op's schema, in the order of `inputs`; `sources`
    are the indices of the ops that wrote these operands last, None where no traced op did. `scalars` are (name, value)
    of the arguments that are no tensors. `exact` are the outputs as float32 arithmetic on the same inputs gives them.

    Where the op belongs: `call` is the torch function that the user's code called (`normalize`), `node` the autograd
    node that ran (`MulBackward0`), `forward_op` the op that this node is the backward of. `autocast` is the dtype of
    the autocast region around the call, None outside; `cast` says that the op only changes a floating-point dtype.
    """

    op: str
    phase: str
    location: Location
    inputs: tuple[TensorStats, ...] = ()
    outputs: tuple[TensorStats, ...] = ()
    index: int = 0
    names: tuple[str, ...] = ()
    sources: tuple[int | None, ...] = ()
    scalars: tuple[tuple[str, float | int | bool | str | None], ...] = ()
    exact: tuple[TensorStats, ...] = ()
    module_class: str | None = None
    call: str | None = None
    node: str | None = None
    forward_op: str | None = None
    autocast: str | None = None
    cast: bool = False


class StepReason(str, enum.Enum):
    """Why an optimizer step was applied or not."""

    APPLIED = "applied"
    FOUND_INF = "found_inf"
    ACCUMULATING = "accumulating"
    DROPPED = "dropped"
    NO_GRADIENTS = "no_gradients"


@dataclass(frozen=True)
class StepValues(Generic[T]):
    """The numbers of one step: 0-dim tensors on the device (`StepReport.on_device`) or Python values.

    `found_inf` is 0 or 1. `grad_norm` is the global 2-norm of the unscaled gradients before clipping and
    `clip_coefficient` what they were multiplied by (1 = untouched); None where no norm was asked for.
    `scale_after` is None until `update` has run.
    """

    found_inf: T
    scale_before: T
    scale_after: T | None = None
    grad_norm: T | None = None
    clip_coefficient: T | None = None


class StepReport:
    """The outcome of one optimizer step, honest also when the optimizer itself cannot tell.

    `on_device` holds 0-dim tensors and costs nothing. Every other attribute is a Python value: the first that is
    read copies all of them to the host at once (one sync) and keeps them.

    `step` counts optimizer steps attempted, from 0. Where the numbers are on the host already they are given as
    `known`, and `place` makes the tensors of `on_device` if somebody asks for them.
    """

    __slots__ = ("_after", "_fetch", "_on_device", "_place", "_reason", "_values", "step")

    def __init__(
        self,
        on_device: StepValues[Any] | None,
        fetch: Callable[[StepValues[Any]], StepValues[float]],
        *,
        step: int = 0,
        reason: StepReason | None = None,
        known: StepValues[float] | None = None,
        place: Callable[[StepValues[float]], StepValues[Any]] | None = None,
    ) -> None:
        self.step = step
        self._on_device = on_device
        self._fetch = fetch
        self._reason = reason
        self._values = known
        self._place = place
        self._after: Any = None

    @property
    def on_device(self) -> StepValues[Any]:
        """All numbers as 0-dim tensors; no host sync."""
        if self._after is not None:
            self._settle()
        if self._on_device is None:
            assert self._place is not None
            self._on_device = self._place(self.values)
        return self._on_device

    def complete_(self, scale_after: Any) -> None:
        """Adds the scale that `update` led to: a 0-dim tensor, or a number where the others are known numbers."""
        self._after = scale_after

    def _settle(self) -> None:
        """Puts the scale that was added among the other numbers."""
        after, self._after = self._after, None
        if self._place is not None:
            self._values, self._on_device = dataclasses.replace(self.values, scale_after=after), None
        else:
            self._values, self._on_device = None, dataclasses.replace(self.on_device, scale_after=after)

    @property
    def values(self) -> StepValues[float]:
        """All numbers as Python floats; one host sync at the first read."""
        if self._after is not None:
            self._settle()
        if self._values is None:
            self._values = self._fetch(self.on_device)
        return self._values

    @property
    def reason(self) -> StepReason:
        """Why the step was applied or not."""
        if self._reason is not None:
            return self._reason
        return StepReason.FOUND_INF if self.values.found_inf else StepReason.APPLIED

    @property
    def applied(self) -> bool:
        """Whether the parameters were updated."""
        return self.reason is StepReason.APPLIED

    @property
    def found_inf(self) -> bool:
        """Whether any rank's unscaled gradients held an infinity or NaN."""
        return bool(self.values.found_inf)

    @property
    def scale_before(self) -> float:
        """The loss scale that this step's gradients carried."""
        return self.values.scale_before

    @property
    def scale_after(self) -> float | None:
        """The loss scale after `update`; None before it.

        Below `scale_before` although the step was applied: headroom rules lowered it ahead of an overflow.
        """
        return self.values.scale_after

    @property
    def grad_norm(self) -> float | None:
        """Global 2-norm of the unscaled gradients before clipping; None when not asked for."""
        return self.values.grad_norm

    @property
    def clip_coefficient(self) -> float | None:
        """What the gradients were multiplied by to clip them; 1.0 when they were within `max_norm`."""
        return self.values.clip_coefficient

    def __bool__(self) -> bool:
        return self.applied

    def __repr__(self) -> str:
        return f"StepReport(step={self.step}, reason={self.reason.value!r}, {self.values})"


def to_json(record: Any) -> Any:
    """`record` as JSON-ready values: dataclasses become dicts, enums their values, tuples lists."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, enum.Enum):
        return record.value
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(value) for value in record]
    return record
