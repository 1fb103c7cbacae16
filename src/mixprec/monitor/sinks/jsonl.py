"""A file of lines, each written whole in one write, so that whatever kills the process loses the last line at most.

A run's folder holds `rank0.jsonl`, `rank1.jsonl`, …; each line is an object whose `kind` is "run", "step", "finding"
or "end". A file that has grown to `rotate_bytes` is renamed to `rank0.1.jsonl`, `rank0.2.jsonl`, … and a new one
begins. A run that is resumed in the same folder goes on in the same files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mixprec.monitor._record import StepRecord, to_row
from mixprec.monitor.sinks._sink import RunFacts, Sink
from mixprec.records import SCHEMA, Finding, to_json

__all__ = ["JsonlSink", "last_step", "rotated"]

ROTATE_BYTES = 64 << 20
KEEP = 16
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)


class JsonlSink(Sink):
    """Writes `folder/rankN.jsonl`. Of rotated files the `keep` latest are kept.

    **Cost**: one `write` per step, 200 to 400 bytes, more where modules were looked at.
    """

    every_rank = True

    def __init__(self, folder: str | Path, *, rotate_bytes: int = ROTATE_BYTES, keep: int = KEEP) -> None:
        self.folder = Path(folder)
        self._rotate_bytes, self._keep = rotate_bytes, keep
        self._file: int | None = None
        self._size = 0
        self.path = self.folder / "rank0.jsonl"

    def begin(self, facts: RunFacts) -> None:
        """Opens the file of this rank, or goes on in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / f"rank{facts.rank}.jsonl"
        self._open()
        self._write({"kind": "run", "schema": SCHEMA, **_finite(to_json(facts)), "resumed": self._size > 0})

    def step(self, record: StepRecord) -> None:
        """One line."""
        self._write(to_row(record))

    def finding(self, finding: Finding, step: int) -> None:
        """One line."""
        self._write({"kind": "finding", "step": step, **_finite(to_json(finding))})

    def close(self) -> None:
        """Says that the run ended in the ordinary way."""
        if self._file is not None:
            self._write({"kind": "end"})
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(self._file).st_size
        if self._size and not _ends_whole(self.path):
            os.write(self._file, b"\n")  # what was torn off by a crash stays a line of its own

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is None:
            return
        line = _ENCODER.encode(row).encode() + b"\n"
        if self._size and self._size + len(line) > self._rotate_bytes:
            self._rotate()
        os.write(self._file, line)
        self._size += len(line)

    def _rotate(self) -> None:
        assert self._file is not None
        os.close(self._file)
        numbers = rotated(self.path)
        self.path.rename(self.path.with_suffix(f".{max(numbers, default=0) + 1}.jsonl"))
        for number in sorted(rotated(self.path))[: -self._keep]:
            self.path.with_suffix(f".{number}.jsonl").unlink(missing_ok=True)
        self._open()


def rotated(path: Path) -> dict[int, Path]:
    """The earlier files of `path`, by number."""
    found = {}
    for other in path.parent.glob(f"{path.stem}.*.jsonl"):
        number = other.name.removeprefix(f"{path.stem}.").removesuffix(".jsonl")
        if number.isdigit():
            found[int(number)] = other
    return found


def last_step(folder: Path, rank: int) -> int:
    """The step of the last whole line about a step in the file of `rank`; -1 where there is none."""
    path = folder / f"rank{rank}.jsonl"
    for file in (path, *(rotated(path)[number] for number in sorted(rotated(path), reverse=True))):
        for line in reversed(file.read_bytes().split(b"\n") if file.exists() else []):
            if line.startswith(b'{"kind":"step","step":') and line.endswith(b"}"):
                return int(line.removeprefix(b'{"kind":"step","step":').split(b",")[0].rstrip(b"}"))
    return -1


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return (
        str(value) if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value
    )
