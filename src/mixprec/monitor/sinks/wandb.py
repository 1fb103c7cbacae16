"""Scalars for Weights & Biases; needs the extra `wandb`. Works offline (`mode="offline"`, `wandb sync` later)."""

from __future__ import annotations

from typing import Any

from mixprec.errors import MissingExtraError
from mixprec.monitor._record import StepRecord
from mixprec.monitor.sinks._scalars import scalars
from mixprec.monitor.sinks._sink import RunFacts, Sink
from mixprec.records import Finding, Severity

try:
    import wandb
except ImportError as error:
    raise MissingExtraError("wandb", "wandb", "WandbSink") from error

__all__ = ["WandbSink"]

_LEVELS = {Severity.ERROR: "ERROR", Severity.WARNING: "WARN", Severity.INFO: "INFO"}


class WandbSink(Sink):
    """Logs `mixprec/loss`, `mixprec/scale`, … to `run`, or to a run that it starts with `settings` (`wandb.init`).

    The numbers have an axis of their own, `mixprec/step`, so that they do not disturb what the script logs.
    """

    def __init__(self, run: Any = None, **settings: Any) -> None:
        self._run, self._settings = run, settings
        self._own = run is None

    def begin(self, facts: RunFacts) -> None:
        """Starts the run where there is none."""
        if self._run is None:
            self._run = wandb.init(**self._settings)
        self._run.define_metric("mixprec/step")
        self._run.define_metric("mixprec/*", step_metric="mixprec/step")

    def step(self, record: StepRecord) -> None:
        """The step's numbers."""
        self._run.log({"mixprec/step": record.step, **{f"mixprec/{n}": v for n, v in scalars(record).items()}})

    def finding(self, finding: Finding, step: int) -> None:
        """As an alert of the run."""
        self._run.alert(title=f"{finding.code} {finding.name}", text=finding.message, level=_LEVELS[finding.severity])

    def close(self) -> None:
        """Finishes the run, if it is this sink's own."""
        if self._own and self._run is not None:
            self._run.finish()
