"""What the loss scale has to do with it: backward is linear in the scale, so the float32 twin of each 16-bit op says at
which scale its numbers would have fitted the format.

Pure functions over the records of a step traced with `keep="all", exact=True`. An op depends on the scale if it reads,
directly or not, what `backward` was started with; others (a power of an activation) overflow at any scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mixprec.formats import FloatFormat, find_format
from mixprec.records import OpRecord, TensorStats

__all__ = ["Flush", "Room", "flushes", "room"]


@dataclass(frozen=True)
class Room:
    """Between which loss scales a step's backward fits its 16-bit formats, as powers of two.

    `ceiling` is the largest scale at which no op overflows, set by `narrowest`; None where no 16-bit op depends on
    the scale. Where something did overflow, what came after it could not be measured (`complete` is False) and the
    true ceiling may be lower: trace the step at this one to know. `floor` is the smallest scale at which nothing is
    flushed to 0 or made subnormal, set by `smallest`; None where nothing is at risk. `at_any_scale` is the first
    16-bit op in backward that overflows whatever the scale is.
    """

    scale: float
    ceiling: float | None = None
    floor: float | None = None
    narrowest: OpRecord | None = None
    smallest: OpRecord | None = None
    at_any_scale: OpRecord | None = None
    complete: bool = True

    @property
    def smaller_scale_helps(self) -> bool:
        """Whether an op overflowed in backward that would not have at `ceiling`, a scale of at least 1."""
        return (
            not self.complete
            and self.at_any_scale is None
            and self.ceiling is not None
            and 1 <= self.ceiling < self.scale
        )

    @property
    def fits(self) -> bool:
        """Whether one scale keeps everything: `floor` is not above `ceiling`."""
        return self.floor is None or self.ceiling is None or self.floor <= self.ceiling


@dataclass(frozen=True)
class Flush:
    """One op in backward that lost small gradients: shares of the elements whose exact value is not 0.

    `zeroed` became 0 and `subnormal` lost digits. `keeping_scale` is the smallest power of two at which the smallest
    of them would have been a normal number.
    """

    record: OpRecord
    zeroed: float
    subnormal: float
    keeping_scale: float


def room(records: Iterable[OpRecord], scale: float) -> Room:
    """The loss scales that this step's backward has room for, traced at `scale`.

    **Cost** linear in the records.
    """
    scaled, fixed = _by_dependence(records)
    ceilings = [(scale * _format(out).max / exact.amax, r) for r in scaled for out, exact in _pairs(r) if exact.amax]
    floors = [(scale * _format(out).tiny / exact.amin, r) for r in scaled for out, exact in _pairs(r) if exact.amin]
    top, narrowest = min(ceilings, key=lambda pair: pair[0], default=(None, None))
    low, smallest = max(floors, key=lambda pair: pair[0], default=(None, None))
    bad = any(not stats.finite for record in scaled for stats in record.inputs + record.outputs)
    return Room(
        scale=scale,
        ceiling=None if top is None else _power_below(top),
        floor=None if low is None else _power_above(low),
        narrowest=narrowest,
        smallest=smallest,
        at_any_scale=_earliest([*(r for r in scaled if _always(r, True)), *(r for r in fixed if _always(r, False))]),
        complete=not bad,
    )


def flushes(records: Iterable[OpRecord], scale: float) -> tuple[Flush, ...]:
    """Where along the backward path gradients were flushed, in the order in which it happened.

    **Cost** linear in the records.
    """
    scaled, _ = _by_dependence(records)
    found = (_flush(record, out, exact, scale) for record in scaled for out, exact in _pairs(record))
    return tuple(flush for flush in found if flush is not None)


def _earliest(records: list[OpRecord]) -> OpRecord | None:
    return min(records, key=lambda record: record.index, default=None)


def _flush(record: OpRecord, out: TensorStats, exact: TensorStats, scale: float) -> Flush | None:
    there = exact.numel - exact.zeros
    zeroed, subnormal = out.zeros - exact.zeros, out.subnormals - exact.subnormals
    if not there or max(zeroed, subnormal) <= 0 or not exact.finite:
        return None
    keeping = _power_above(scale * _format(out).tiny / exact.amin) if exact.amin else math.inf
    return Flush(record, max(zeroed, 0) / there, max(subnormal, 0) / there, keeping)


def _by_dependence(records: Iterable[OpRecord]) -> tuple[list[OpRecord], list[OpRecord]]:
    """Backward ops that carry the scale, and those that do not."""
    carrying: set[int] = set()
    scaled: list[OpRecord] = []
    fixed: list[OpRecord] = []
    for record in sorted(records, key=lambda r: r.index):
        seed = record.call in ("backward", "grad") and record.node is None
        carries = seed or (record.phase == "backward" and any(source in carrying for source in record.sources))
        if carries:
            carrying.add(record.index)
        if record.phase == "backward":
            (scaled if carries else fixed).append(record)
    return scaled, fixed


def _pairs(record: OpRecord) -> Sequence[tuple[TensorStats, TensorStats]]:
    """(output, its float32 twin) for the 16-bit outputs whose operands were finite."""
    if not all(stats.finite for stats in record.inputs):
        return ()
    pairs = zip(record.outputs, record.exact, strict=False)
    return [(out, exact) for out, exact in pairs if out.dtype in ("float16", "bfloat16")]


def _always(record: OpRecord, scaled: bool) -> bool:
    """Whether the op overflows at any scale: in float32 too, or without depending on the scale."""
    return any(not out.finite and (not scaled or not exact.finite) for out, exact in _pairs(record))


def _format(stats: TensorStats) -> FloatFormat:
    return find_format(stats.dtype)


def _power_below(value: float) -> float:
    return 2.0 ** math.floor(math.log2(value))


def _power_above(value: float) -> float:
    return 2.0 ** math.ceil(math.log2(value))
