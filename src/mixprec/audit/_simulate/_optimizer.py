"""The optimizer: temporaries as recorded, and what a way to train makes beside the weights."""

from __future__ import annotations

from mixprec.audit._log import Freed, Kind, Op, Phase, width
from mixprec.audit._simulate._reading import elements
from mixprec.audit._simulate._run import Run
from mixprec.audit._simulate._work import Work

__all__ = ["optimizer"]


def optimizer(run: Run) -> None:
    """Temporaries as recorded; with masters, float32 gradients take the place of the 16-bit ones."""
    ledger, step = run.ledger, run.step
    trained = run.reading.trained()
    for key in list(run.kept):
        ledger.drop(key)
    if run.precision.masters:
        ledger.hold(("gradients",), trained * (4 - width(run.precision.weights)))
    elif run.precision.weights != "float32":
        largest = max((elements(h) for h in step.held if h.kind is Kind.GRADIENT), default=0)
        ledger.hold(("chunk",), 8 * min(2**24, trained) + run.precision.narrowing * largest)
    for event in step.events:
        if isinstance(event, Op) and event.phase is Phase.OPTIMIZER:
            moved = sum(ref.bytes for ref in (*event.inputs, *event.outputs))
            run.work.append(Work(0, "float32", moved))
            for number in event.made:
                if run.reading.owned.get(number) is not Kind.STATE:
                    ledger.hold(("v", number), step.storages[number].bytes)
        elif isinstance(event, Freed) and event.storage not in run.reading.alias:
            ledger.drop(("v", event.storage))
