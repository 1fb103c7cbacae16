"""What every sink is asked to do: nothing, until it says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from mixprec.monitor._record import StepRecord
from mixprec.records import Finding

__all__ = ["RunFacts", "Sink"]


@dataclass(frozen=True)
class RunFacts:
    """What is known before the first step: `started` in seconds since the epoch, `command` as typed."""

    started: float
    rank: int = 0
    world: int = 1
    level: str = "light"
    command: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"
    optimizers: tuple[str, ...] = ()
    parameters: int = 0
    first_step: int = 0


class Sink:
    """Override what you want to be told."""

    every_rank = False
    """Whether ranks other than 0 have one too."""

    def begin(self, facts: RunFacts) -> None:
        """The first step has closed."""

    def step(self, record: StepRecord) -> None:
        """A step, after all those before it."""

    def finding(self, finding: Finding, step: int) -> None:
        """An alert that was raised by the records up to `step`."""

    def close(self) -> None:
        """Nothing comes any more."""
