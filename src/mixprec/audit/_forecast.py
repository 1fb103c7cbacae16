"""The table that answers "what would it take in another precision": one row per way to train, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from mixprec._policy import Policy
from mixprec.audit._log import Step
from mixprec.audit._simulate import Simulated, each_precision, simulate

__all__ = ["Forecast", "forecasts_of"]


@dataclass(frozen=True)
class Forecast:
    """Bytes in one precision. `peak` is the most at any time, `after_forward` what is held when backward begins.

    `saved` is kept for backward, `casts` are 16-bit copies of weights, `extra` is compensation.
    """

    precision: str
    weights: int
    masters: int
    gradients: int
    state: int
    extra: int
    buffers: int
    casts: int
    saved: int
    after_forward: int
    peak: int


def forecasts_of(step: Step, policy: Policy) -> tuple[Forecast, ...]:
    """The table for the model and batch of `step`. **Cost**: pure Python, linear in the events, per row."""
    return tuple(_row(p.name, simulate(step, p, policy)) for p in each_precision())


def _row(name: str, s: Simulated) -> Forecast:
    return Forecast(
        name,
        s.weights,
        s.masters,
        s.gradients,
        s.state,
        s.extra,
        s.buffers,
        s.casts,
        s.saved,
        s.after_forward,
        s.peak,
    )
