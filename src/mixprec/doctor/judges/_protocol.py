"""The calls of the training protocol as a judge asks about them: what came before what, for one optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mixprec.doctor._arm import Arm, Event
from mixprec.doctor.judges._reading import event_run

__all__ = ["between", "enabled", "last", "last_crossing", "on_ranks", "scaling_is_on", "sites_of"]


def on_ranks(arm: Arm) -> Iterator[tuple[Event, ...]]:
    """The protocol calls of each rank, in order."""
    for rank in sorted({event.rank for event in arm.events}):
        yield event_run(arm, rank)


def enabled(event: Event) -> bool:
    """Whether the scaler of a call was on."""
    return event.data.get("enabled", True) is not False


def scaling_is_on(events: Iterable[Event]) -> bool:
    """Whether a scaler that is on scaled anything."""
    return any(event.kind == "scale" and enabled(event) for event in events)


def last(events: Sequence[Event], *kinds: str, optimizer: int | None = None) -> Event | None:
    """The last call of one of these kinds; with `optimizer`, of it or of nobody in particular."""
    for event in reversed(events):
        if event.kind in kinds and (optimizer is None or event.optimizer in (None, optimizer)):
            return event
    return None


def between(events: Iterable[Event], start: Event | None, stop: Event | None) -> list[Event]:
    """The calls after `start` and before `stop`."""
    low = -1 if start is None else start.index
    return [event for event in events if low < event.index and (stop is None or event.index < stop.index)]


def sites_of(events: Iterable[Event], *kinds: str) -> list[Event]:
    """The calls of these kinds, one per line."""
    return list({(e.site.file, e.site.line): e for e in reversed(list(events)) if e.kind in kinds}.values())[::-1]


def last_crossing(events: Sequence[Event], optimizer: int) -> list[Event]:
    """The calls since the last one that ended a window of this optimizer: its step, or an update."""
    end = last(events, "scaler_step", "step", "update", optimizer=optimizer)
    return between(events, end, None)
