"""Records go to every sink; one that fails is named once and dropped, and the others and the training go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mixprec.monitor._record import StepRecord
from mixprec.monitor.sinks import RunFacts, Sink
from mixprec.records import Finding

__all__ = ["Outlets"]

logger = logging.getLogger("mixprec.monitor")


class Outlets:
    """The sinks that still work."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._begun = False
        self.rank = 0

    def begin(self, facts: RunFacts) -> None:
        """On ranks other than 0 only sinks that every rank has are kept."""
        self.rank, self._begun = facts.rank, True
        self._sinks = [sink for sink in self._sinks if sink.every_rank or facts.rank == 0]
        self._each("begin", lambda sink: sink.begin(facts))

    def step(self, record: StepRecord) -> None:
        """Tells all of them."""
        if self._sinks:
            self._each("step", lambda sink: sink.step(record))

    def finding(self, finding: Finding, step: int) -> None:
        """Tells all of them."""
        self._each("finding", lambda sink: sink.finding(finding, step))

    def close(self) -> None:
        """Closes those that were begun."""
        if self._begun:
            self._each("close", lambda sink: sink.close())
        self._sinks = []

    def _each(self, what: str, tell: Callable[[Sink], Any]) -> None:
        for sink in tuple(self._sinks):
            try:
                tell(sink)
            except Exception as error:  # a full disk or a lost server must not stop a training
                self._sinks.remove(sink)
                logger.warning(
                    "%s failed in %s and gets no more records: %s: %s",
                    type(sink).__name__,
                    what,
                    type(error).__name__,
                    error,
                )
