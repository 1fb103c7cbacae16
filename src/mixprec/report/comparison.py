"""Several runs of one task, side by side: the record that a terminal, JSON and a page render.

Everything in it is already a value or a sentence; whoever renders it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Band", "Chart", "Comparison", "Grid", "Outcome", "Series"]


@dataclass(frozen=True)
class Series:
    """A curve: points in the order of x; None in `y` is a gap. `steps` draws it as stairs."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    steps: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis with a name."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Chart:
    """Curves over one x axis. `log` is 0 for a linear y axis, or the base of a logarithmic one: 2 or 10.

    `note` says in one sentence what to look at. `x_powers` writes x = -14 as 2 to the power of -14.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log: int = 0
    note: str = ""
    bands: tuple[Band, ...] = ()
    x_powers: bool = False


@dataclass(frozen=True)
class Grid:
    """A table. The first cell of a row is its name; the others are numbers as text and align right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one run: its name, whether it worked, and one sentence that says why."""

    name: str
    worked: bool
    sentence: str


@dataclass(frozen=True)
class Comparison:
    """The whole report. `facts` are (name, value) pairs about the machine and the task, `notes` how it was measured.

    `data` is what the JSON document holds beside the sentences: plain values for programs.
    """

    title: str
    lead: str
    outcomes: tuple[Outcome, ...]
    grids: tuple[Grid, ...]
    charts: tuple[Chart, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    data: Any = None
