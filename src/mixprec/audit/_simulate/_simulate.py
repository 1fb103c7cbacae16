"""A step in another precision: the record is read once, then its events happen again in order."""

from __future__ import annotations

from dataclasses import dataclass

from mixprec._policy import Policy
from mixprec.audit._log import Asked, Freed, Kind, Mark, Op, Phase, Saved, Step, width
from mixprec.audit._simulate._backward import Backward
from mixprec.audit._simulate._forward import Forward
from mixprec.audit._simulate._held import fixed
from mixprec.audit._simulate._optimizer import Optimizer
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
    forward = _played(run)
    return Simulated(
        **held._asdict(),
        gradients=reading.trained() * width(precision.weights),
        casts=sum(run.cached.values()),
        saved=forward.saved,
        after_forward=base + forward.after,
        peak=base + run.ledger.peak,
        work=tuple(run.work),
    )


def _played(run: Run) -> Forward:
    """Every event of the record, in the order of the record; what the forward passes left behind."""
    forward, backward, optimizer = Forward(run), Backward(run), Optimizer(run)
    phase = Phase.FORWARD
    for index, event in enumerate(run.step.events):
        if isinstance(event, Op):
            now = Phase.FORWARD if event.phase is Phase.RECOMPUTE and phase is Phase.FORWARD else event.phase
            if phase is Phase.FORWARD and now is Phase.BACKWARD:
                forward.end()
            elif phase is Phase.BACKWARD and now in (Phase.FORWARD, Phase.OPTIMIZER):
                backward.end()
            phase = phase if now is Phase.RECOMPUTE else now
            if now is Phase.BACKWARD:
                backward.op(event)
            elif now is Phase.OPTIMIZER:
                optimizer.op(event)
            else:
                forward.op(index, event)
        elif isinstance(event, Saved):
            forward.kept(event)
        elif isinstance(event, Asked):
            run.asked(event)
        elif isinstance(event, Freed):
            run.freed(event.storage)
        elif isinstance(event, Mark):
            optimizer.mark(event)
    if phase is Phase.FORWARD:
        forward.end()
    return forward
