"""One traced step, summed up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mixprec._trace import Tracer, flushes, locate, room
from mixprec.monitor.replay._result import Traced
from mixprec.records import OpRecord

__all__ = ["descend", "summed_up"]

_DESCENTS = 4

_MOST = 50
"""Flushes that are kept, the worst ones, in the order in which they happened."""


def descend(traced: Traced, trace: Callable[[float], Traced]) -> float | None:
    """The first of ever smaller loss scales at which `trace` finds a clean step; None where none helps."""
    for _ in range(_DESCENTS):
        room = traced.room
        if room is None or not room.smaller_scale_helps or room.ceiling is None:
            return None
        traced = trace(room.ceiling)
        if traced.origin.clean:
            return room.ceiling
    return None


def summed_up(tracer: Tracer, scale: float | None, deep: bool, since: int = 0) -> Traced:
    """Origin, room for the loss scale and flushed gradients of what `tracer` (keep="all", exact=True) saw.

    `deep` keeps the records, `since` leaves out the ops before that index that the step does not depend on.
    """
    records = _of_the_step(tracer.records, since)
    lost = flushes(records, scale or 1.0)
    worst = sorted(lost, key=lambda flush: -flush.zeroed - flush.subnormal)[:_MOST]
    return Traced(
        origin=locate(records),
        ops=len(records),
        room=room(records, scale or 1.0),
        flushes=tuple(sorted(worst, key=lambda flush: flush.record.index)),
        compiled=tracer.compiled,
        records=records if deep else (),
    )


def _of_the_step(records: Sequence[OpRecord], since: int) -> tuple[OpRecord, ...]:
    """The ops from index `since` on, and those before it whose results they use, directly or not."""
    kept: list[OpRecord] = []
    used: set[int] = set()
    for record in sorted(records, key=lambda record: -record.index):
        if record.index >= since or record.index in used:
            kept.append(record)
            used.update(source for source in record.sources if source is not None)
    return tuple(reversed(kept))
