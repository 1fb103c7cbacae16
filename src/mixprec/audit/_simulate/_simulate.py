"""A step in another precision: the record read once, then forward, backward and the optimizer in order."""

from __future__ import annotations

from dataclasses import dataclass

from mixprec._policy import Policy
from mixprec.audit._log import Kind, Step, width
from mixprec.audit._simulate._backward import backward
from mixprec.audit._simulate._forward import forward
from mixprec.audit._simulate._held import fixed
from mixprec.audit._simulate._optimizer import optimizer
from mixprec.audit._simulate._reading import Reading
from mixprec.audit._simulate._run import Run
from mixprec.audit._simulate._ways import Precision
from mixprec.audit._simulate._work import Work

__all__ = ["Simulated", "simulate"]


@dataclass(frozen=True)
class Simulated:
    """Bytes by cause, and the work. `saved` is kept for backward at the end of forward, `casts` are of weights."""

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
    work: tuple[Work, ...]


_PASSING = (None, Kind.GRADIENT, Kind.CAST, Kind.SAVED)


def simulate(step: Step, precision: Precision, policy: Policy) -> Simulated:
    """`step` in `precision` under `policy`. **Cost**: pure Python, linear in the number of events."""
    reading = Reading(step)
    run = Run(reading, precision, policy)
    held = fixed(reading, precision)
    base = sum(held)
    for number in step.alive:
        if reading.owned.get(number) in _PASSING and number not in reading.alias:
            run.ledger.hold(("v", number), run.size(number))
    after = forward(run)
    live = run.ledger.live
    saved = sum(live[key] for key in run.kept if key in live and key[0] != "w")
    casts = sum(run.cached.values())
    backward(run)
    optimizer(run)
    return Simulated(
        **held._asdict(),
        gradients=reading.trained() * width(precision.weights),
        casts=casts,
        saved=saved,
        after_forward=base + after,
        peak=base + run.ledger.peak,
        work=tuple(run.work),
    )
