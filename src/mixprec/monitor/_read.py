"""A run is read back from its folder, rank by rank, whatever ended it; a line that was torn off is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixprec.errors import InvalidValueError
from mixprec.monitor._record import StepRecord, from_json
from mixprec.monitor.sinks.jsonl import rotated
from mixprec.records import Evidence, Finding, Fix, Location, Severity

__all__ = ["RankRun", "Run", "read_run"]


@dataclass(frozen=True)
class RankRun:
    """What one rank recorded. `facts` of the last start; `ended` in the ordinary way; `torn` lines that were lost."""

    rank: int
    facts: dict[str, Any] = field(default_factory=dict)
    steps: tuple[StepRecord, ...] = ()
    findings: tuple[tuple[int, Finding], ...] = ()
    starts: int = 1
    ended: bool = False
    torn: int = 0


@dataclass(frozen=True)
class Run:
    """What all ranks recorded, in the order of ranks."""

    folder: Path
    ranks: tuple[RankRun, ...]

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The steps of the first rank."""
        return self.ranks[0].steps

    def by_step(self) -> dict[int, dict[int, StepRecord]]:
        """Step to rank to record, in the order of steps."""
        merged: dict[int, dict[int, StepRecord]] = {}
        for rank in self.ranks:
            for record in rank.steps:
                merged.setdefault(record.step, {})[rank.rank] = record
        return dict(sorted(merged.items()))


def read_run(folder: str | Path) -> Run:
    """The run in `folder`. Raises: InvalidValueError where there is none."""
    place = Path(folder)
    ranks = {int(match[1]) for path in place.glob("rank*.jsonl") if (match := _NAME.fullmatch(path.name))}
    if not ranks:
        raise InvalidValueError("run", str(folder), "a folder that a monitor has written, with rank0.jsonl in it")
    return Run(place, tuple(_rank(number, place / f"rank{number}.jsonl") for number in sorted(ranks)))


_NAME = re.compile(r"rank(\d+)(\.\d+)?\.jsonl")  # a run may end between two files


def _rank(number: int, path: Path) -> RankRun:
    facts: dict[str, Any] = {}
    steps: dict[int, StepRecord] = {}
    findings: list[tuple[int, Finding]] = []
    starts, torn, ended = 0, 0, False
    for row in _rows(path):
        kind = None if row is None else row.get("kind")
        ended = kind == "end"
        if row is None:
            torn += 1
        elif kind == "run":
            starts, facts = starts + 1, row
        elif kind == "step":
            steps[int(row["step"])] = from_json(row)  # a step that was done again after a resume is the later one
        elif kind == "finding":
            findings.append((int(row["step"]), _finding(row)))
    ordered = tuple(steps[step] for step in sorted(steps))
    return RankRun(number, facts, ordered, tuple(findings), starts, ended, torn)


def _rows(path: Path) -> Iterator[dict[str, Any] | None]:
    """The objects of all lines, oldest file first; None for a line that is none."""
    for file in (*(earlier for _, earlier in sorted(rotated(path).items())), path):
        for line in file.read_bytes().split(b"\n") if file.exists() else ():
            if line.strip():
                yield _row(line)


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _finding(row: dict[str, Any]) -> Finding:
    fix = row.get("fix")
    return Finding(
        code=row["code"],
        name=row["name"],
        severity=Severity(row["severity"]),
        message=row["message"],
        location=Location(**{k: v for k, v in (row.get("location") or {}).items() if k in _LOCATION}),
        evidence=tuple(Evidence(**{k: v for k, v in e.items() if k in _EVIDENCE}) for e in row.get("evidence", ())),
        fix=None if fix is None else Fix(fix["text"], fix.get("safe", False)),
    )


_LOCATION = frozenset(Location.__dataclass_fields__)
_EVIDENCE = frozenset(Evidence.__dataclass_fields__)
