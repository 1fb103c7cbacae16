"""Scalars and headroom histograms for TensorBoard; needs the extra `tensorboard`."""

from __future__ import annotations

import math
from pathlib import Path

from mixprec.errors import MissingExtraError
from mixprec.monitor._record import StepRecord
from mixprec.monitor.sinks._scalars import scalars
from mixprec.monitor.sinks._sink import RunFacts, Sink
from mixprec.records import Finding

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise MissingExtraError("tensorboard", "tensorboard", "TensorBoardSink") from error

__all__ = ["TensorBoardSink"]


class TensorBoardSink(Sink):
    """Writes an event file to `folder`: `mixprec/loss`, `mixprec/scale`, …, `mixprec/headroom/MODULE`."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._writer: SummaryWriter | None = None

    def begin(self, facts: RunFacts) -> None:
        """Opens the event file."""
        self._writer = SummaryWriter(str(self._folder))
        self._writer.add_text("mixprec/command", " ".join(facts.command), facts.first_step)

    def step(self, record: StepRecord) -> None:
        """The step's numbers; those that are not finite are left out, since TensorBoard draws them nowhere."""
        assert self._writer is not None
        for name, value in scalars(record).items():
            if math.isfinite(value):
                self._writer.add_scalar(f"mixprec/{name}", value, record.step, record.time)

    def finding(self, finding: Finding, step: int) -> None:
        """As text."""
        assert self._writer is not None
        self._writer.add_text("mixprec/alerts", f"{finding.code} {finding.message}", step)

    def close(self) -> None:
        """Writes what is buffered."""
        if self._writer is not None:
            self._writer.close()
