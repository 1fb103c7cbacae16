"""Kernels run behind the host's back: a clock read before they are done shows how long it took to ask for them."""

from __future__ import annotations

from dataclasses import dataclass

from mixprec.audit._log import Event, Mark, Op, Step, Sync
from mixprec.records import Location

__all__ = ["ClockRow", "clocks_of"]


@dataclass(frozen=True)
class ClockRow:
    """The script read the clock at `begin` and at `end` with `flops` asked for in between and nothing that waited."""

    begin: Location
    end: Location
    flops: int


def clocks_of(step: Step, device: str) -> tuple[ClockRow, ...]:
    """Measurements in `step` that did not wait for `device`; none on a CPU, whose kernels are done when they return.

    A step is followed by one like it, so a measurement may end in the next. A single line that reads the clock in each
    step measures steps by the gap between them, which is right however late the device is.
    """
    if device == "cpu":
        return ()
    rows: dict[tuple[str | None, int | None], ClockRow] = {}
    begin: Mark | None = None
    flops, waited = 0, True
    events: list[Event] = [*step.events, *step.events]
    for event in events:
        if isinstance(event, Op) and event.flops:
            flops, waited = flops + event.flops, False
        elif isinstance(event, Sync) or (isinstance(event, Mark) and event.what == "synchronize"):
            waited = True
        elif isinstance(event, Mark) and event.what == "clock":
            place = (event.location.file, event.location.line)
            if begin is not None and flops and not waited and place != (begin.location.file, begin.location.line):
                rows.setdefault(place, ClockRow(begin.location, event.location, flops))
            begin, flops = event, 0
    return tuple(rows.values())
