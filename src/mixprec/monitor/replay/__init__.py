"""A failed step runs again, bit for bit, and shows the op that failed."""

from __future__ import annotations

from mixprec._trace import source_line
from mixprec.monitor.replay._call import MicroBatch, replay
from mixprec.monitor.replay._kept import keep_result, kept_result
from mixprec.monitor.replay._precision import PRECISIONS
from mixprec.monitor.replay._result import NOTABLE, Outcome, Replay, Traced, place
from mixprec.monitor.replay._script import NotReachedError, replay_script

__all__ = [
    "NOTABLE",
    "PRECISIONS",
    "MicroBatch",
    "NotReachedError",
    "Outcome",
    "Replay",
    "Traced",
    "keep_result",
    "kept_result",
    "place",
    "replay",
    "replay_script",
    "source_line",
]
