"""Backward: gradients are computed in the dtype of their forward op, and what that op kept is released."""

from __future__ import annotations

from mixprec.audit._casts import is_cast
from mixprec.audit._log import Kind, Op, is_half, width
from mixprec.audit._simulate._rules import resized
from mixprec.audit._simulate._run import Run
from mixprec.audit._simulate._work import Work

__all__ = ["Backward"]

LAST = 2**62
"""Sequence numbers above it are those of gradients being added up, which release nothing."""

_WIDE = frozenset({"mkldnn_rnn_layer_backward"})
"""Their gradients are float32 whatever they compute in; autograd casts each to the dtype of its input.

Source: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/mkldnn/RNN.cpp
"""


class Backward:
    """The backward ops in order."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._lowest = LAST

    def op(self, op: Op) -> None:
        """What later forward ops kept is released, then the op runs."""
        if op.sequence < LAST:
            self._lowest = min(self._lowest, op.sequence)
            for key in [key for key, needed in self.run.kept.items() if needed > op.sequence]:
                self.run.release(key)
        _compute(self.run, op)

    def end(self) -> None:
        """The pass is over: the graph that it went through is gone."""
        for key in [key for key, needed in self.run.kept.items() if needed >= self._lowest]:
            self.run.release(key)
        self._lowest = LAST


def _compute(run: Run, op: Op) -> None:
    low = _low(run, op)
    cast = is_cast(op) and not op.explicit
    for number in op.made:
        if number in run.reading.alias:
            _between(run, number, low)
    made = [number for number in op.made if number not in run.reading.alias]
    if low and op.name in _WIDE:
        _wide(run, made)
    else:
        _results(run, made, low, cast)
    if (op.made or op.flops) and not (cast and not run.precision.low):
        refs = (*op.inputs, *op.outputs)
        moved = sum(resized(ref.bytes, ref.dtype, _narrowed(run, ref.dtype, low)) for ref in refs)
        run.work.append(Work(op.flops, _narrowed(run, "float32", low), moved))


def _low(run: Run, op: Op) -> bool:
    """Whether the op computes in 16 bits: as its forward op did, and a sum of gradients as its summands are."""
    if op.name != "add":
        return run.halved.get(op.sequence, False)
    summands = [run.dtype(ref.storage) for ref in op.inputs if ref.storage >= 0 and width(ref.dtype)]
    return bool(summands) and all(map(is_half, summands))


def _between(run: Run, number: int, low: bool) -> None:
    """The record has a 16-bit value here that becomes the gradient of a weight; without the cast it is the gradient."""
    target = run.reading.value(number)
    if run.reading.owned.get(target) is not Kind.GRADIENT:
        return
    if low and not is_half(run.precision.weights):
        run.ledger.hold(("t", number), run.step.storages[number].bytes)
    else:
        run.ledger.hold(("v", target), run.size(target))


def _results(run: Run, made: list[int], low: bool, cast: bool) -> None:
    owned = [number for number in made if run.reading.owned.get(number) is Kind.GRADIENT]
    between = owned if low and not is_half(run.precision.weights) and not cast else []
    for number in between:
        storage = run.step.storages[number]
        run.ledger.hold(("t", number), resized(storage.bytes, storage.dtype, run.precision.low))
    for number in made:
        dtype = _narrowed(run, run.step.storages[number].dtype, low)
        run.dtypes[number] = run.precision.weights if number in owned else dtype
        run.ledger.hold(("v", number), run.size(number))
        run.ledger.drop(("t", number))


def _wide(run: Run, made: list[int]) -> None:
    """All results exist in float32, then each is cast to 16 bits."""
    storages = run.step.storages
    for number in made:
        run.ledger.hold(("t", number), storages[number].bytes)
    for number in made:
        owned = run.reading.owned.get(number) is Kind.GRADIENT
        narrow = resized(storages[number].bytes, storages[number].dtype, run.precision.low)
        run.ledger.hold(("n", number), narrow)
        run.ledger.drop(("n", number))
        run.ledger.drop(("t", number))
        run.dtypes[number] = run.precision.weights if owned else run.precision.low
        run.ledger.hold(("v", number), run.size(number))


def _narrowed(run: Run, dtype: str, low: bool) -> str:
    if not width(dtype) or dtype == "float64":
        return dtype
    return run.precision.low if low else "float32"
