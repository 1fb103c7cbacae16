"""A step that is run again leaves no second trace of itself: in a replay the script's own monitors write nothing."""

from __future__ import annotations

__all__ = ["silence", "silent"]

_silent = False


def silence() -> None:
    """From now on, in this process, monitors keep records in memory only and nothing is kept for replay."""
    global _silent
    _silent = True


def silent() -> bool:
    """Whether this process runs a step again."""
    return _silent
