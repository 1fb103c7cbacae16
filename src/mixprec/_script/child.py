"""Inside the script's processes: the entry runs once in each, and what it registers runs once at each one's exit.

Source: what reaches a process that multiprocessing forked is read in CPython's `Lib/multiprocessing/process.py`
(`_bootstrap` forgets earlier finalizers, then runs the after-fork registry).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

__all__ = ["at_exit", "end_now", "folder", "in_worker", "rank", "record_file", "replaced", "start"]

_folder = Path()
_callbacks: list[Callable[[], None]] = []
_finished: set[int] = set()


def start(place: str) -> None:
    """Called when torch has just been imported: calls the entry that the parent named.

    Raises: whatever the entry raises; the caller (the startup file) leaves it for the parent to read.
    """
    global _folder
    _folder = Path(place)
    document = json.loads((_folder / "start.json").read_text(encoding="utf-8"))
    module, _, function = document["entry"].partition(":")
    callback = getattr(importlib.import_module(module), function)(document["options"])
    if callback is not None:
        at_exit(callback)


def replaced(file: str) -> str | None:
    """The text that this run has in place of `file`'s own; None where it has none."""
    try:
        texts = json.loads((Path(os.environ["MIXPREC_SCRIPT"]) / "replace.json").read_text(encoding="utf-8"))
    except (KeyError, OSError):
        return None
    text = texts.get(os.path.realpath(file))
    return None if text is None else str(text)


def folder() -> Path:
    """The folder that this run's processes and its parent share."""
    return _folder


def rank() -> int | None:
    """The rank of this process, from the process group or the environment; None where there are no ranks (yet)."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def record_file(suffix: str = ".jsonl") -> Path:
    """A file of this process's own: `rank0-pid1234.jsonl`, without ranks `main-pid1234.jsonl`.

    Call it when there is something to write, not at start: the rank may be known only later, and processes with
    nothing to say then leave no file. After a fork the name is another one.
    """
    number = rank()
    return _folder / f"{'main' if number is None else f'rank{number}'}-pid{os.getpid()}{suffix}"


def in_worker() -> bool:
    """Whether this process loads data for another (a DataLoader worker). **Cost**: a dictionary look-up."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and getattr(worker, "_worker_info", None) is not None


def at_exit(callback: Callable[[], None]) -> None:
    """`callback` runs when this process, or one that was forked from it by multiprocessing, exits in the ordinary way.

    Not after `os._exit` or a signal: what must not be lost is written as it happens.
    """
    if not _callbacks:
        atexit.register(_finish)
        from multiprocessing import util  # torch has imported it already

        util.register_after_fork(_AfterFork, _AfterFork.again)
    _callbacks.append(callback)


class _AfterFork:
    """multiprocessing calls `again` in each child that it forks; such a child ends without `atexit`."""

    @staticmethod
    def again(_: object) -> None:
        from multiprocessing import util

        util.Finalize(None, _finish, exitpriority=100)


def _finish() -> None:
    if os.getpid() in _finished:
        return
    _finished.add(os.getpid())
    for callback in _callbacks:
        callback()


def end_now(code: int = 0) -> NoReturn:
    """Ends this process at once with its output flushed and the exit callbacks run.

    Nothing of the script gets in the way: no `except`, no `finally`, no waiting for threads; what it started is ended
    by the parent.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a script may have replaced or closed its streams
            stream.flush()
    try:
        _finish()
    finally:
        os._exit(code)
