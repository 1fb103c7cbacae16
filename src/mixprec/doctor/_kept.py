"""An examination kept as lines of JSON: the judges can be asked again, elsewhere and later, without running anything.

The first line says what was examined and what lint found, `{"examination": ...}`; each `{"arm": ...}` begins an arm,
and the lines up to the next are its records as the arm streamed them, without what is as by default and with numbers
to six digits: no judge draws a line so finely.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mixprec.doctor._arm import Arm, Examination, Intervention, read_arm, write_record
from mixprec.records import Evidence, Finding, Fix, Location, Severity, to_json

__all__ = ["keep", "kept"]

_SIMPLE = ("name", "ended", "returncode", "seconds", "ranks")
_RECORDS = ("optimizers", "scalers", "regions", "steps", "events", "modules", "warnings", "ops")


def keep(examination: Examination, path: Path, without: Sequence[str] = ()) -> None:
    """Writes `examination` to `path`, compressed, with the texts `without` taken out of it."""
    with lzma.open(path, "wt", encoding="utf-8") as file:
        for line in _lines(examination):
            for text in without:
                line = line.replace(text, "")
            file.write(line)


def kept(path: Path) -> Examination:
    """The examination that `keep` wrote to `path`."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
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
        yield from map(_lean_line, getattr(arm, group))
    if arm.crash is not None:
        yield _lean_line(arm.crash)
    yield from (_line({"record": "fact", "name": name, "value": value}) for name, value in arm.facts.items())
    yield from (_line({"record": "uncontrolled", "what": what}) for what in arm.uncontrolled)


def _lean_line(record: Any) -> str:
    """`write_record(record)` without what `read_arm` supplies by itself."""
    body = json.loads(write_record(record))
    return _line({"record": body["record"], **_lean(record, body)})


def _lean(value: Any, body: Any) -> Any:
    """`body`, which is `value` as JSON, without fields that are as by default, and with shorter numbers."""
    if dataclasses.is_dataclass(value):
        fields = {f.name: f for f in dataclasses.fields(value) if getattr(value, f.name) != _default(f)}
        return {name: _lean(getattr(value, name), body[name]) for name in fields}
    if isinstance(value, dict):
        return {key: _lean(item, body[str(key)]) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_lean(item, one) for item, one in zip(value, body, strict=True)]
    return _short(value) if isinstance(value, float) and math.isfinite(value) else body


def _default(field: dataclasses.Field[Any]) -> Any:
    """What the field is if it is not given; `MISSING`, which nothing equals, where it must be."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _short(number: float) -> float:
    """Six digits; whole numbers and powers of two, as a loss scale is, to the last digit."""
    exact = number.is_integer() or abs(math.frexp(number)[0]) == 0.5
    return number if exact else float(f"{number:.6g}")


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
