"""One traced step, summed up."""

from __future__ import annotations

from mixprec._trace import Tracer, flushes, locate, room
from mixprec.monitor.replay._result import Traced

__all__ = ["summed_up"]

_MOST = 50
"""Flushes that are kept, the worst ones, in the order in which they happened."""


def summed_up(tracer: Tracer, scale: float | None, deep: bool, since: int = 0) -> Traced:
    """Origin, room for the loss scale and flushed gradients of what `tracer` (keep="all", exact=True) saw.

    `deep` keeps the records, `since` leaves out the ops before that index.
    """
    records = tuple(record for record in tracer.records if record.index >= since)
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
