"""What is happening now: on a terminal sparklines that are redrawn in place, elsewhere a plain line now and then."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import IO, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mixprec.monitor._record import StepRecord
from mixprec.monitor.sinks._sink import RunFacts, Sink
from mixprec.records import Finding

__all__ = ["LiveSink", "plain_line", "sparkline"]

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 48
EVENTS = 5
MODULES = 5
STYLES = {"grow": "green", "back_off": "yellow", "tolerate": "yellow", "lower": "cyan"}


def sparkline(values: Sequence[float | None], width: int = WIDTH) -> str:
    """`values` as bars, the latest `width` of them, from their lowest to their highest; `·` missing, `!` not finite.

    >>> sparkline([1.0, 2.0, None, float("nan"), 8.0])
    '▁▂·!█'
    """
    shown = list(values)[-width:]
    finite = [value for value in shown if value is not None and math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    return "".join(_bar(value, low, high) for value in shown)


def _bar(value: float | None, low: float, high: float) -> str:
    if value is None:
        return "·"
    if not math.isfinite(value):
        return "!"
    return BARS[0 if high == low else min(7, int((value - low) / (high - low) * 7.999))]


class LiveSink(Sink):
    """Loss, loss scale, gradient norm, headroom by module, and what happened last.

    On a terminal the view is redrawn at most every `interval` seconds; elsewhere one plain line is written every
    `plain_interval` seconds. Only rank 0 shows anything.
    """

    def __init__(
        self, file: IO[str] | None = None, *, interval: float = 0.25, plain_interval: float = 10.0, width: int = WIDTH
    ) -> None:
        self._console = Console(file=file or sys.stderr, highlight=False, emoji=False, markup=False)
        self._interval = interval if self._console.is_terminal else plain_interval
        self._width = width
        self._records: deque[StepRecord] = deque(maxlen=width)
        self._events: deque[Text] = deque(maxlen=EVENTS)
        self._detailed: StepRecord | None = None
        self._live: Live | None = None
        self._drawn = -math.inf

    def begin(self, facts: RunFacts) -> None:
        """Takes the lower part of the terminal, where there is one."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=True, redirect_stderr=True)
            self._live.start()

    def step(self, record: StepRecord) -> None:
        """Draws if it is time to."""
        self._records.append(record)
        if record.looked:
            self._detailed = record
        if record.skipped or record.event in ("grow", "lower"):
            self._events.append(_event(record))
        if time.monotonic() - self._drawn >= self._interval:
            self._draw()

    def finding(self, finding: Finding, step: int) -> None:
        """Among the events; on a terminal only, since the log has it too."""
        self._events.append(Text(f"step {step}: {finding.code} {finding.message}", "bold red"))

    def close(self) -> None:
        """Draws the last state and leaves it standing."""
        if self._records:
            self._draw()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        if self._live is None:
            self._console.print(plain_line(self._records[-1]), soft_wrap=True)
        else:
            self._live.update(self._view(), refresh=True)

    def _view(self) -> Group:
        records, last = tuple(self._records), self._records[-1]
        rows = Table.grid(padding=(0, 2, 0, 0))
        for name, key in (("loss", "loss"), ("scale", "scale"), ("norm", "grad_norm")):
            values = [getattr(record, key) for record in records]
            if any(value is not None for value in values):
                logs = [_log2(value) for value in values] if key == "scale" else values
                rows.add_row(Text(name, "bold"), _short(getattr(last, key)), sparkline(logs, self._width))
        parts: list[Any] = [Text(_heading(last), "bold"), rows]
        if self._detailed is not None:
            parts.append(_headroom_table(self._detailed))
        return Group(*parts, *self._events)


def _heading(record: StepRecord) -> str:
    speed = f" · {record.seconds * 1e3:.1f} ms" if record.seconds else ""
    rate = f" · lr {record.lr:.3g}" if record.lr is not None else ""
    return f"step {record.step}{speed}{rate}"


def _headroom_table(record: StepRecord) -> Table:
    """The modules that are closest to their format's maximum, forward or backward."""
    rows = Table.grid(padding=(0, 2, 0, 0))
    closest = sorted(
        (min(b for b in (m.headroom, m.grad_headroom) if b is not None), path)
        for path, m in record.modules.items()
        if m.headroom is not None or m.grad_headroom is not None
    )[:MODULES]
    for bits, path in closest:
        filled = max(0, min(20, round(bits))) if math.isfinite(bits) else 0
        style = "red" if bits < 2 else "yellow" if bits < 4 else "green"
        rows.add_row(path, Text("█" * filled + "░" * (20 - filled), style), f"{bits:.1f} bits")
    return rows


def _event(record: StepRecord) -> Text:
    if record.skipped:
        kind = "skipped, benign" if record.benign else "skipped"
        return Text(f"step {record.step}: {kind}: {record.why}", "dim" if record.benign else "red")
    return Text(
        f"step {record.step}: scale {record.event} {_short(record.scale)} → {_short(record.scale_after)}",
        STYLES.get(record.event or "", ""),
    )


def plain_line(record: StepRecord) -> str:
    """A step in one line without colour."""
    facts = [f"step {record.step}"]
    for name, value in (("loss", record.loss), ("scale", record.scale), ("norm", record.grad_norm), ("lr", record.lr)):
        if value is not None:
            facts.append(f"{name} {_short(value)}")
    return "  ".join([*facts, *([f"skipped ({record.why})"] if record.skipped else [])])


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _log2(value: float | None) -> float | None:
    return math.log2(value) if value is not None and value > 0 else None
