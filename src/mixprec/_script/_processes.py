"""Whatever a script started ends with it: its session, and every process that carries its mark in the environment.

A session alone is not enough: torchrun gives each rank a session of its own, and daemons take one. And where the
process that started the script is killed without a chance to clean up, a `Warden` does it in its place.

This file also runs by itself, without the package: `python -I -S _processes.py MARK` is the warden's process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Warden", "end", "marked"]

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""


class Warden:
    """A process in a session of its own that outlives this one: where this one dies inside `with`, even by SIGKILL, it
    ends everything that carries `mark`.

    **Cost** a bare interpreter, about 20 ms.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def __enter__(self) -> Warden:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left for the warden to do: it goes, and this returns when it is gone."""
        self._process.communicate(DISMISSED)


DISMISSED = b"dismissed"


def _keep_watch(mark: str) -> None:
    """The warden's process: reads until the pipe's other end is closed, which the death of its holder does."""
    if sys.stdin.buffer.read() == DISMISSED:
        return
    _signal_marked(mark, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    while any(marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    while any(marked(mark)) and time.monotonic() < deadline + 2.0:
        _signal_marked(mark, signal.SIGKILL)
        time.sleep(0.05)


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
    _signal_marked(mark, number)


def _signal_marked(mark: str, number: int) -> None:
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


if __name__ == "__main__":
    _keep_watch(sys.argv[1])
