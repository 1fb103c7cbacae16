"""A document of results is shown from its JSON alone: the same rows in a terminal and on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rich.box
import rich.table

from benchmarks.harness import Column

_TARGETS = (
    Column("name", "target"),
    Column("wanted", "wanted"),
    Column("value", "measured", "{:.3g}"),
    Column("met", "met"),
)


def columns_of(table: Mapping[str, Any]) -> list[Column]:
    """The columns of a table in a document."""
    return [Column(**column) for column in table["columns"]]


def targets_table(document: Mapping[str, Any]) -> dict[str, Any]:
    """The targets as one more table."""
    rows = [
        target
        | {"wanted": f"{'at most' if target['at_most'] else 'at least'} {target['wanted']:g}"}
        | {"met": "yes" if target["met"] else "no"}
        for target in document["targets"]
    ]
    columns = [vars(column) for column in _TARGETS]
    return {"name": "targets", "title": "Targets, set for two CPU cores", "columns": columns, "rows": rows}


def for_terminal(table: Mapping[str, Any]) -> rich.table.Table:
    """Numbers to the right, words to the left."""
    columns = columns_of(table)
    shown = rich.table.Table(title=table["title"], title_justify="left", box=rich.box.SIMPLE)
    for place, column in enumerate(columns):
        shown.add_column(column.title, justify=_side(table["rows"], column), overflow="fold", no_wrap=place > 0)
    for row in table["rows"]:
        shown.add_row(*(column.write(row) for column in columns))
    return shown


def markdown(table: Mapping[str, Any]) -> str:
    """The table in Markdown, with its title above."""
    columns = columns_of(table)
    sides = {"left": "---", "right": "---:"}
    lines = [
        [column.title for column in columns],
        [sides[_side(table["rows"], column)] for column in columns],
        *([column.write(row) for column in columns] for row in table["rows"]),
    ]
    return f"**{table['title']}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def machine_line(document: Mapping[str, Any]) -> str:
    """Where and when it was measured."""
    m = document["machine"]
    where = m["accelerator"] or f"{m['processor']}, {m['cores']} cores, {m['threads']} threads, {m['capability']}"
    best = max(document["bandwidth"].values()) / 1e9
    version = f"torch {m['torch']}, Python {m['python']}, mixprec {m['mixprec']}"
    load = "" if m["load"] is None else f"; load when it began {m['load']:.1f}"
    quick = "; a quick run" if m["quick"] else ""
    return f"{m['date']}, {where}; {version}; memory bandwidth {best:.1f} GB/s{load}{quick}."


def _side(rows: Sequence[Mapping[str, Any]], column: Column) -> Any:
    values = [row[column.key] for row in rows if row.get(column.key) is not None]
    return "left" if any(isinstance(value, str) for value in values) else "right"
