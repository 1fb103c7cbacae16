"""Backward: gradients are computed in the dtype of their forward op, and what that op kept is released."""

from __future__ import annotations

from mixprec.audit._casts import is_cast
from mixprec.audit._log import Freed, Kind, Op, Phase, is_half, width
from mixprec.audit._simulate._rules import resized
from mixprec.audit._simulate._run import Run
from mixprec.audit._simulate._work import Work

__all__ = ["backward"]

LAST = 2**62
"""Sequence numbers above it are those of gradients being added up, which release nothing."""


def backward(run: Run) -> None:
    """Runs the backward ops."""
    begun = False
    for event in run.step.events:
        if isinstance(event, Op):
            begun = begun or event.phase is Phase.BACKWARD
            if event.phase is Phase.BACKWARD:
                _release(run, event.sequence)
                _gradient(run, event)
        elif isinstance(event, Freed) and begun:
            run.freed(event.storage)


def _release(run: Run, sequence: int) -> None:
    if sequence > LAST:
        return
    for key in [key for key, needed in run.kept.items() if needed > sequence]:
        del run.kept[key]
        run.ledger.drop(key)


def _gradient(run: Run, op: Op) -> None:
    reading, ledger, storages = run.reading, run.ledger, run.step.storages
    low = run.halved.get(op.sequence, False)
    moved = 0
    for ref in (*op.inputs, *op.outputs):
        moved += resized(ref.bytes, ref.dtype, _narrowed(run, ref.dtype, low))
    cast = is_cast(op) and not op.explicit
    for number in op.made:
        target = reading.alias.get(number, number)
        if target != number and reading.owned.get(target) is Kind.GRADIENT and low:
            ledger.hold(("t", target), storages[number].bytes)
    made = [number for number in op.made if number not in reading.alias]
    owned = [number for number in made if reading.owned.get(number) is Kind.GRADIENT]
    between = owned if low and not is_half(run.precision.weights) and not cast else []
    for number in between:
        ledger.hold(("t", number), storages[number].bytes // 2)
    for number in made:
        run.dtypes[number] = run.precision.weights if number in owned else _narrowed(run, storages[number].dtype, low)
        ledger.hold(("v", number), run.size(number))
        ledger.drop(("t", number))
    if (op.made or op.flops) and not (cast and not run.precision.low):
        run.work.append(Work(op.flops, _narrowed(run, "float32", low), moved))


def _narrowed(run: Run, dtype: str, low: bool) -> str:
    if not width(dtype) or dtype == "float64":
        return dtype
    return run.precision.low if low else "float32"
