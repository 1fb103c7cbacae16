"""What a process writes is always read, so it never blocks, and never kept beyond a bound, so it never fills memory."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Capture"]

CHUNK = 1 << 16
HEAD = 1 << 17
TAIL = 1 << 19


class Capture:
    """Reads a file descriptor to its end in a thread of its own; keeps the first 128 KiB and the last 512 KiB."""

    def __init__(self, source: int, on_output: Callable[[str], None] | None = None) -> None:
        self._source = source
        self._on_output = on_output
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self._dropped = 0
        self._thread = threading.Thread(target=self._read, name="mixprec output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        """Until the other end is closed everywhere."""
        while True:
            try:
                chunk = os.read(self._source, CHUNK)
            except OSError:
                return
            if not chunk:
                return
            self._keep(chunk)
            if self._on_output is not None:
                self._on_output(chunk.decode("utf-8", "replace"))

    def _keep(self, chunk: bytes) -> None:
        room = HEAD - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        self._tail.append(chunk)
        self._kept += len(chunk)
        while self._kept - len(self._tail[0]) >= TAIL:
            gone = len(self._tail.popleft())
            self._kept -= gone
            self._dropped += gone

    def text(self, wait: float = 2.0) -> str:
        """What was kept. Waits up to `wait` seconds for the end of a pipe that a left-over process may hold open."""
        self._thread.join(wait)
        gap = f"\n[... {self._dropped} bytes left out ...]\n".encode() if self._dropped else b""
        return (bytes(self._head) + gap + b"".join(list(self._tail))).decode("utf-8", "replace")
