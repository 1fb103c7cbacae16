"""Whatever a script started ends with it: its session, and every process that carries its mark in the environment.

A session alone is not enough: torchrun gives each rank a session of its own, and daemons take one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["end", "marked"]

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""


def end(process: subprocess.Popen[bytes], mark: str, grace: float = GRACE) -> None:
    """Ends `process` and all that carry `mark`: SIGTERM, after `grace` seconds SIGKILL; returns when they are gone.

    A second Ctrl-C while it waits goes straight to SIGKILL.
    """
    try:
        if process.poll() is None or any(marked(mark)):
            _signal(process, mark, signal.SIGTERM)
            _wait(process, mark, grace)
    finally:
        _kill(process, mark)


def _kill(process: subprocess.Popen[bytes], mark: str) -> None:
    """SIGKILL until nothing is left; gives up after 2 s on what sleeps in the kernel and will die when it wakes."""
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline and (process.poll() is None or any(marked(mark))):
        _signal(process, mark, signal.SIGKILL)
        _wait(process, mark, 0.2)


def _signal(process: subprocess.Popen[bytes], mark: str, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # the leader of a session of its own, so its group has its id
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _wait(process: subprocess.Popen[bytes], mark: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (process.poll() is None or any(marked(mark))):
        time.sleep(0.02)


def marked(mark: str) -> Iterator[int]:
    """Processes of this user, but not this one, whose environment holds `mark`. Linux; elsewhere none are found."""
    needle, own = mark.encode(), os.getpid()
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid != own and _carries(entry, needle):
            yield pid


def _carries(entry: Path, needle: bytes) -> bool:
    try:
        if needle not in (entry / "environ").read_bytes():
            return False
        return b"\nState:\tZ" not in (entry / "status").read_bytes()
    except OSError:
        return False
