"""Where numbers went wrong: the first op that made an Inf, and the first that made a NaN, out of finite operands.

Both are asked for apart, because a NaN is mostly an earlier Inf's child (Inf − Inf, 0 · Inf). An Inf is judged by
what becomes of it: one that was made on purpose (a mask) or that every reader turns into finite numbers again
(softmax of a masked score) is nobody's fault, nor is a −Inf that is only there not to be chosen (argmax of scores);
one that reaches a NaN, a loss or a gradient is.

A pure function over records, in whatever process or document they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mixprec._trace._benign import (
    CONSUMERS,
    QUESTIONS,
    auxiliary_outputs,
    leaves_out,
    on_purpose,
    packet,
    written_elsewhere,
)
from mixprec.records import OpRecord, TensorStats

__all__ = ["Origin", "locate"]


@dataclass(frozen=True)
class Origin:
    """Where the first Inf and the first NaN came from.

    `first_inf` made an Inf and `first_nan` a NaN, each out of operands that held neither; None where there was no
    such op. `nan_from_inf` is the first op that made a NaN out of an Inf when no NaN came from finite operands.
    `given` is the first op that got Inf or NaN from outside the trace: a batch, a weight, a buffer. `hidden` are
    ops that made Inf or NaN of which every reader made finite numbers, unless they did so on purpose.
    """

    first_inf: OpRecord | None = None
    first_nan: OpRecord | None = None
    nan_from_inf: OpRecord | None = None
    given: OpRecord | None = None
    hidden: tuple[OpRecord, ...] = ()

    @property
    def first(self) -> OpRecord | None:
        """The earliest op at fault: of `given`, `first_inf`, `first_nan` and `nan_from_inf` the one that ran first."""
        found = [r for r in (self.given, self.first_inf, self.first_nan, self.nan_from_inf) if r is not None]
        return min(found, key=lambda record: record.index, default=None)

    @property
    def clean(self) -> bool:
        """Whether nothing is at fault."""
        return self.first is None


def locate(records: Iterable[OpRecord]) -> Origin:
    """The ops at fault among `records`, which are one step's in order (those with Inf or NaN suffice).

    **Cost** linear in the records; no tensor, no kernel.
    """
    asked = (record for record in records if record.call not in QUESTIONS)
    ordered = tuple(sorted(asked, key=lambda record: record.index))
    harmful = _harmful(ordered)
    infs = [r for r in ordered if _makes_inf(r) and not on_purpose(r)]
    nans = [r for r in ordered if _makes_nan(r) and not written_elsewhere(r)]
    fresh = [r for r in nans if r.index in harmful and not _any_inf(r.inputs)]
    born = _first(r for r in nans if r.index in harmful and _any_inf(r.inputs))
    masked = born is not None and packet(born) in CONSUMERS
    return Origin(
        first_inf=_first(r for r in infs if r.index in harmful),
        first_nan=_first(iter(fresh)),
        nan_from_inf=born,
        given=_first(r for r in ordered if _given(r, masked) and r.index in harmful),
        hidden=tuple(r for r in _in_order(infs, nans) if r.index not in harmful),
    )


def _first(records: Iterator[OpRecord]) -> OpRecord | None:
    return next(records, None)


def _in_order(*groups: list[OpRecord]) -> list[OpRecord]:
    """The records of all groups, each once, as they ran."""
    once = {record.index: record for group in groups for record in group}
    return [once[index] for index in sorted(once)]


def _harmful(ordered: Sequence[OpRecord]) -> set[int]:
    """Indices of the ops whose Inf or NaN is left at the end or reaches an op whose own is.

    Every reader runs after what it reads, so one pass from the end judges all.
    """
    readers, chosen_from = _readers(ordered), _chosen_from(ordered)
    harmful: set[int] = set()
    for record in reversed(ordered):
        reading = readers.get(record.index, ())
        left = not reading and record.index not in chosen_from and not auxiliary_outputs(record)
        if _bad(record.outputs) and (left or any(reader.index in harmful for reader in reading)):
            harmful.add(record.index)
    return harmful


def _readers(ordered: Sequence[OpRecord]) -> dict[int, list[OpRecord]]:
    """For each op, the ops that compute with something bad that it wrote."""
    readers: dict[int, list[OpRecord]] = {}
    for record in filter(_computes, ordered):
        for stats, source in zip(record.inputs, record.sources, strict=False):
            if source is not None and not stats.finite:
                readers.setdefault(source, []).append(record)
    return readers


def _chosen_from(ordered: Sequence[OpRecord]) -> set[int]:
    """Indices of the ops that only choose without a choice of −Inf being an error, and of those they read −Inf of."""
    choosing = [record for record in ordered if leaves_out(record)]
    read = {
        source
        for record in choosing
        for stats, source in zip(record.inputs, record.sources, strict=False)
        if source is not None and not stats.finite
    }
    return read | {record.index for record in choosing}


def _computes(record: OpRecord) -> bool:
    """Whether the op makes numbers of numbers, and does not only look (`isfinite`, `item`, `argmax`)."""
    return any("float" in one.dtype for one in record.outputs)


def _bad(stats: Iterable[TensorStats]) -> bool:
    return not all(one.finite for one in stats)


def _any_inf(stats: Iterable[TensorStats]) -> bool:
    return any(one.infs for one in stats)


def _any_nan(stats: Iterable[TensorStats]) -> bool:
    return any(one.nans for one in stats)


def _makes_inf(record: OpRecord) -> bool:
    return _any_inf(record.outputs) and not _bad(record.inputs)


def _makes_nan(record: OpRecord) -> bool:
    return _any_nan(record.outputs) and not _any_nan(record.inputs)


def _given(record: OpRecord, masked: bool) -> bool:
    """Whether an operand came bad from outside the trace; with `masked`, a −Inf there is a mask's and no fault."""
    return _bad(record.outputs) and any(
        source is None and (stats.nans > 0 or stats.infs > (stats.negative_infs if masked else 0))
        for stats, source in zip(record.inputs, record.sources, strict=False)
    )
