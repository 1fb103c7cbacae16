"""An examination kept as lines of JSON: the judges can be asked again, elsewhere and later, without running anything.

The first line says what was examined and what lint found, `{"examination": ...}`; each `{"arm": ...}` begins an arm,
and the lines up to the next are its records as the arm streamed them.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mixprec.doctor._arm import Arm, Examination, Intervention, read_arm, write_record
from mixprec.records import Evidence, Finding, Fix, Location, Severity, to_json

__all__ = ["keep", "kept"]

_SIMPLE = ("name", "ended", "returncode", "seconds", "ranks")
_RECORDS = ("optimizers", "scalers", "regions", "steps", "events", "modules", "warnings", "ops")


def keep(examination: Examination, path: Path) -> None:
    """Writes `examination` to `path`, compressed."""
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        for line in _lines(examination):
            file.write(line.encode())


def kept(path: Path) -> Examination:
    """The examination that `keep` wrote to `path`."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return _read(file)


def _lines(examination: Examination) -> Iterator[str]:
    yield _line(
        {
            "examination": {
                "command": list(examination.command),
                "wanted_steps": examination.wanted_steps,
                "lint": to_json(examination.lint),
            }
        }
    )
    for arm in examination.arms:
        yield from _arm_lines(arm)


def _arm_lines(arm: Arm) -> Iterator[str]:
    head: dict[str, Any] = {name: getattr(arm, name) for name in _SIMPLE}
    yield _line({"arm": {**head, "interventions": [[one.name, one.value] for one in arm.interventions]}})
    for group in _RECORDS:
        yield from (write_record(record) for record in getattr(arm, group))
    if arm.crash is not None:
        yield write_record(arm.crash)
    yield from (_line({"record": "fact", "name": name, "value": value}) for name, value in arm.facts.items())
    yield from (_line({"record": "uncontrolled", "what": what}) for what in arm.uncontrolled)


def _line(value: Any) -> str:
    return json.dumps(value) + "\n"


def _read(lines: Iterable[str]) -> Examination:
    examination = Examination(())
    arm: Arm | None = None
    records: list[str] = []
    for line in lines:
        body = json.loads(line)
        if "examination" in body:
            examination = _examination(body["examination"])
        elif "arm" in body:
            examination = examination if arm is None else examination.with_arm(read_arm(arm, records))
            arm, records = _arm(body["arm"]), []
        else:
            records.append(line)
    return examination if arm is None else examination.with_arm(read_arm(arm, records))


def _examination(body: dict[str, Any]) -> Examination:
    return Examination(
        tuple(body["command"]), lint=tuple(map(_finding, body["lint"])), wanted_steps=body["wanted_steps"]
    )


def _arm(body: dict[str, Any]) -> Arm:
    interventions = tuple(Intervention(name, value) for name, value in body.pop("interventions"))
    return Arm(**body, interventions=interventions)


def _finding(body: dict[str, Any]) -> Finding:
    fix = body.get("fix")
    known = {field.name for field in dataclasses.fields(Location)}
    return Finding(
        body["code"],
        body["name"],
        Severity(body["severity"]),
        body["message"],
        Location(**{name: value for name, value in body["location"].items() if name in known}),
        tuple(Evidence(**one) for one in body["evidence"]),
        None if fix is None else Fix(fix["text"], fix["safe"]),
    )
