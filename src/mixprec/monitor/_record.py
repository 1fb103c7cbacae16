"""One row per optimizer step attempted, in plain values that JSON holds and gives back unchanged.

Non-finite numbers are written as the strings "inf", "-inf" and "nan", and what was not measured is left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mixprec.records import StepReason

__all__ = ["ModuleRecord", "StepRecord", "from_json", "to_row"]


@dataclass(frozen=True)
class ModuleRecord:
    """What one module's outputs held in a step, and the gradients with respect to them, as scaled.

    `headroom` and `grad_headroom` are bits: how often the largest magnitude could double before it leaves `dtype`
    (`grad_dtype`); minus infinity where it has left it. `low` and `high` are the extreme values of the output. `zero`
    and `subnormal` are shares of the sampled gradient elements, judged in `grad_dtype`. `weight_headroom`,
    `weight_zero` and `weight_subnormal` say the same of the scaled gradients of the module's own parameters, judged as
    the format in which they were computed.
    """

    dtype: str | None = None
    low: float | None = None
    high: float | None = None
    headroom: float | None = None
    grad_dtype: str | None = None
    grad_headroom: float | None = None
    zero: float | None = None
    subnormal: float | None = None
    weight_headroom: float | None = None
    weight_zero: float | None = None
    weight_subnormal: float | None = None


class _Nothing(dict[str, ModuleRecord]):
    """A mapping that is empty and can be a field's default."""

    __hash__ = object.__hash__  # type: ignore[assignment] # nobody writes to it


NO_MODULES: Mapping[str, ModuleRecord] = _Nothing()


@dataclass(frozen=True)
class StepRecord:
    """A step as it was. None and empty: not measured in this step.

    Attributes:
        step: optimizer steps attempted before this one.
        looked: modules, and samples of gradients and weights, were looked at in this step.
        time: seconds since the epoch, when the step ended. `seconds` is how long it took.
        loss: what gradients were taken of, summed over the step's micro-batches, before scaling.
        scale, scale_after: the loss scale of the step's gradients, and of the next ones.
        event: what became of the scale: "grow", "back_off", "tolerate", "lower" or "hold".
        reason: "applied", or why not. `benign` and `why` judge a skipped step.
        grad_norm, clipped_norm: global 2-norm of the unscaled gradients, before and after clipping.
        clipped_scaled: gradients were clipped while they still carried the loss scale.
        lr: of the first parameter group. `lrs` of each optimizer, where there are several.
        optimizers: those whose steps it was, as "optimizer0", … in the order in which they were watched; empty where
            it was the first one's alone.
        memory: bytes; of the accelerator's allocator, or resident where there is none.
        logit: largest magnitude in the output of the whole model.
        format: the 16-bit format that the model computes in, "fp32" where none was seen.
        zero, subnormal, subnormal_bf16, nonfinite: shares of sampled scaled gradient elements; subnormal in FP16 and
            in BF16.
        update_ratio: 2-norm of what the step changed by the 2-norm of the weights, on a sample.
        unchanged: share of the sampled 16-bit weight elements that had a gradient and did not change; `unchanged_all`
            counts weights of every dtype.
        modules: by path, in steps that were looked at in detail.
        bad_gradients, bad_weights, bad_buffers: names of what is not finite, five at most.
    """

    step: int
    looked: bool = False
    time: float = 0.0
    seconds: float | None = None
    loss: float | None = None
    scale: float | None = None
    scale_after: float | None = None
    event: str | None = None
    reason: str = StepReason.APPLIED.value
    benign: bool | None = None
    why: str = ""
    grad_norm: float | None = None
    clipped_norm: float | None = None
    clipped_scaled: bool = False
    lr: float | None = None
    lrs: tuple[float, ...] = ()
    optimizers: tuple[str, ...] = ()
    memory: int | None = None
    logit: float | None = None
    format: str | None = None
    zero: float | None = None
    subnormal: float | None = None
    subnormal_bf16: float | None = None
    nonfinite: float | None = None
    update_ratio: float | None = None
    unchanged: float | None = None
    unchanged_all: float | None = None
    modules: Mapping[str, ModuleRecord] = NO_MODULES
    bad_gradients: tuple[str, ...] = ()
    bad_weights: tuple[str, ...] = ()
    bad_buffers: tuple[str, ...] = ()

    @classmethod
    def of(cls, known: dict[str, Any]) -> StepRecord:
        """The record of these fields, the others at their defaults; keeps `known`.

        Fields at their defaults are the class's own attributes: setting all of them one by one takes longer than
        everything else that is done for an ordinary step.
        """
        record = object.__new__(cls)
        record.__dict__.update(known)
        return record

    @property
    def applied(self) -> bool:
        """Whether the parameters were updated."""
        return self.reason == StepReason.APPLIED.value

    @property
    def skipped(self) -> bool:
        """Whether gradients were not finite, so that nothing was updated."""
        return self.reason == StepReason.FOUND_INF.value


_FIELDS = tuple(f.name for f in dataclasses.fields(StepRecord))
_MODULE_FIELDS = tuple(f.name for f in dataclasses.fields(ModuleRecord))
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(StepRecord)}
_LISTS = ("lrs", "optimizers", "bad_gradients", "bad_weights", "bad_buffers")
_WORDS = {"reason", "why", "event", "format", "dtype", "grad_dtype"}
_PLAIN = (bool, int, str)


def to_row(record: StepRecord) -> dict[str, Any]:
    """`record` as JSON values, without what was not measured. **Cost**: some microseconds, called at every step."""
    row: dict[str, Any] = {"kind": "step", "step": record.step}
    for name, value in vars(record).items():
        if value is None or value is _DEFAULTS[name]:
            continue
        kind = type(value)
        if kind is float:
            row[name] = value if value - value == 0.0 else str(value)
        elif kind in _PLAIN:
            row[name] = value
        elif value:
            row[name] = _structure(name, value)
    return row


def _structure(name: str, value: Any) -> Any:
    if name == "modules":
        return {path: _module_row(module) for path, module in value.items()}
    return [_number(item) for item in value]


def _module_row(module: ModuleRecord) -> dict[str, Any]:
    values = ((f, getattr(module, f)) for f in _MODULE_FIELDS)
    return {name: _number(value) for name, value in values if value is not None}


def _number(value: Any) -> Any:
    """A float to six digits, since a look at all modules writes hundreds; others as they are."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def from_json(row: Mapping[str, Any]) -> StepRecord:
    """The record that `to_row` made `row` of. Keys of a later version are left out."""
    known: dict[str, Any] = {"step": int(row["step"])}
    for name in _FIELDS[1:]:
        if name in row:
            known[name] = _value(name, row[name])
    return StepRecord(**known)


def _value(name: str, value: Any) -> Any:
    if name == "modules":
        return {path: _module(module) for path, module in value.items()}
    if name in _LISTS:
        return tuple(_value("", item) if name == "lrs" else item for item in value)
    return value if name in _WORDS or not isinstance(value, str) else float(value)


def _module(row: Mapping[str, Any]) -> ModuleRecord:
    return ModuleRecord(**{name: _value(name, value) for name, value in row.items() if name in _MODULE_FIELDS})
