"""Records go to a file of this process's own, line by line; after a fork, to another file."""

from __future__ import annotations

import json
import os
import threading
from typing import IO, Any

from mixprec._script import child
from mixprec.doctor._arm import write_record

__all__ = ["Writer"]

LIMIT = 64 << 20
"""Bytes that one process writes at most; what a judge needs is written long before."""


class Writer:
    """Opened at the first record: a process with nothing to tell leaves no file."""

    def __init__(self) -> None:
        self._file: IO[str] | None = None
        self._pid = 0
        self._rank: int | None = None
        self._written = 0
        self._lock = threading.RLock()  # a signal handler may write too

    @property
    def rank(self) -> int:
        """The rank of this process, also after its process group is gone; 0 where there are none."""
        number = child.rank()
        self._rank = self._rank if number is None else number
        return self._rank or 0

    def record(self, record: Any) -> None:
        """Writes a record of `mixprec.doctor._arm`."""
        self._line(write_record(record))

    def fact(self, name: str, value: Any) -> None:
        """Writes something that has no record of its own."""
        self._line(json.dumps({"record": "fact", "name": name, "value": value}) + "\n")

    def uncontrolled(self, what: str) -> None:
        """Writes what the interventions cannot reach."""
        self._line(json.dumps({"record": "uncontrolled", "what": what}) + "\n")

    def close(self) -> None:
        """Nothing more is written."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _line(self, line: str) -> None:
        with self._lock:
            if self._file is None or self._pid != os.getpid():
                self._pid, self._written = os.getpid(), 0
                self._file = child.record_file().open("a", buffering=1, encoding="utf-8")
            if self._written < LIMIT:
                self._written += len(line)
                self._file.write(line)
