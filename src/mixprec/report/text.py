"""Findings and tables for people: readable at 80 columns, in a pipe, and without colour.

Colour says nothing that the words do not say. It appears on a terminal only, and never when NO_COLOR is set.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mixprec.records import Finding, Location, Severity
from mixprec.report.comparison import Comparison

__all__ = ["console", "excerpt", "finding_text", "indented", "links", "pairs", "place", "print_comparison", "table"]

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
TAB = "    "


def console(file: IO[str] | None = None, *, stderr: bool = False) -> Console:
    """A console for standard output (or `file`): plain text, 80 columns wide, when it is not a terminal.

    Set `COLUMNS` for another width, and print with `soft_wrap=True` what must stay on one line for `grep`.
    """
    target = file if file is not None else sys.stderr if stderr else sys.stdout
    return Console(file=target, highlight=False, emoji=False, markup=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Iterable[int] = ()) -> Table:
    """A table with a rule under its heading and nothing else; columns whose index is in `right` align right.

    The first column, a name, is never broken.
    """
    numbers = set(right)
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        drawn.add_column(name, justify="right" if index in numbers else "left", overflow="fold", no_wrap=index == 0)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what they are, side by side; long text wraps within its column."""
    drawn = Table.grid(padding=(0, 2, 0, 0))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def indented(words: str) -> Padding:
    """A paragraph two columns in from the left."""
    return Padding(words, (0, 0, 0, 2))


def links(screen: Console, addresses: Iterable[str]) -> None:
    """Print each address on a line of its own, never broken, so that it can be copied or clicked."""
    for address in addresses:
        screen.print(f"  {address}", style="dim", soft_wrap=True)


def print_comparison(screen: Console, comparison: Comparison) -> None:
    """Print what a page would show, without the curves and the notes on method."""
    screen.print(comparison.title, style="bold")
    screen.print(comparison.lead)
    for grid in comparison.grids:
        screen.print(f"\n{grid.title}", style="bold")
        screen.print(table(grid.columns, grid.rows, right=range(1, len(grid.columns))))
    screen.print()
    for outcome in comparison.outcomes:
        verdict = Text("trained", "green") if outcome.worked else Text("did not train", "red")
        screen.print(Text.assemble((outcome.name, "bold"), ": ", verdict, ". ", outcome.sentence))
    screen.print()
    screen.print(pairs(comparison.facts))


def place(location: Location) -> str:
    """`file:line:column` (`file:cell 3:line:column` in a notebook), or the module path and op, as far as they are
    known; empty when nothing is.
    """
    cell = None if location.cell is None else f"cell {location.cell}"
    parts = [part for part in (location.file, cell, location.line, location.column) if part is not None]
    source = ":".join(str(part) for part in parts)
    inside = " ".join(part for part in (location.module, location.op) if part)
    return f"{source} ({inside})" if source and inside else source or inside


def finding_text(finding: Finding, source: str | None = None, why: str = "") -> Text:
    """A finding as a heading line, its source line with a caret (when `source`, the file's text, is given), the
    evidence, why it matters and the fix. The heading is `place: severity CODE name: message`, which editors can jump
    to.
    """
    where = place(finding.location)
    text = Text()
    text.append(f"{where}: " if where else "", "bold")
    text.append(f"{finding.severity.value} {finding.code}", STYLES[finding.severity])
    text.append(f" {finding.name}: {finding.message}\n")
    for line, style in excerpt(finding.location, source):
        text.append(line + "\n", style)
    for fact in finding.evidence:
        context = ", ".join(str(part) for part in (fact.arm, _step(fact.step)) if part)
        value = f"{fact.value:g}" if isinstance(fact.value, float) else str(fact.value)
        text.append(f"  seen: {fact.what} = {value}{' ' if fact.unit else ''}{fact.unit}")
        text.append(f" ({context})\n" if context else "\n")
    if why:
        text.append(f"  why: {why}\n")
    if finding.fix is not None:
        text.append("  fix: ", "green")
        text.append(finding.fix.text.replace("\n", "\n       ") + "\n")
    return text


def excerpt(location: Location, source: str | None) -> Iterator[tuple[str, str]]:
    """(line, style): the source line that a location names, with its number, and carets under its columns."""
    lines = re.split(r"\r\n|\r|\n", source or "")
    if location.line is None or not 1 <= location.line <= len(lines):
        return
    line = lines[location.line - 1]
    number = f"{location.line:>5} | "
    yield number + line.replace("\t", TAB).rstrip(), "dim"
    if location.column is None:
        return
    start = location.column - 1
    same_line = location.end_line in (None, location.line) and location.end_column is not None
    end = location.end_column - 1 if same_line and location.end_column is not None else len(line.rstrip())
    before = line[:start].replace("\t", TAB)
    width = max(1, len(line[start:end].replace("\t", TAB)))
    yield " " * 5 + " | " + " " * len(before) + "^" * width, "red"


def _step(step: int | None) -> str:
    return "" if step is None else f"step {step}"
