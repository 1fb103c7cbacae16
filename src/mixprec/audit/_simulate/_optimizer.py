"""The optimizer: temporaries as recorded, and what a way to train makes beside the weights."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec._lowbit import CHUNK
from mixprec.audit._log import Kind, Mark, Op, width
from mixprec.audit._simulate._run import Run
from mixprec.audit._simulate._work import Work

__all__ = ["Optimizer"]


class Optimizer:
    """The optimizer's own ops in order; what wraps it in the record is left out."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._wrapped = any(mark.what == "inner step" for mark in run.step.marks)
        self._inside = not self._wrapped
        self._chunks = list(_chunks(run.reading.sizes())) if run.precision.narrowing else []

    def mark(self, mark: Mark) -> None:
        """A step begins or ends."""
        if mark.what == "before step":
            self._begin()
        elif mark.what == "step":
            self._end()
        if self._wrapped and mark.what in ("inner step", "inner stepped"):
            self._inside = mark.what == "inner step"

    def op(self, op: Op) -> None:
        """Temporaries are float32 in every precision."""
        if not self._inside:
            return
        run = self.run
        run.work.append(Work(0, "float32", sum(ref.bytes for ref in (*op.inputs, *op.outputs))))
        for number in op.made:
            if run.reading.owned.get(number) is not Kind.STATE:
                run.ledger.hold(("v", number), run.step.storages[number].bytes)

    def _begin(self) -> None:
        """With masters, float32 gradients take the place of the 16-bit ones; without, copies of a chunk exist."""
        run = self.run
        if run.precision.masters:
            run.ledger.hold(("gradients",), run.reading.trained() * (4 - width(run.precision.weights)))
        run.ledger.hold(("chunk",), 8 * max(map(sum, self._chunks), default=0))

    def _end(self) -> None:
        """Weights are rounded one at a time."""
        run = self.run
        run.ledger.drop(("chunk",))
        rounding = (8 * sum(chunk) + run.precision.narrowing * max(chunk) for chunk in self._chunks)
        run.ledger.hold(("rounding",), max(rounding, default=0))
        run.ledger.drop(("rounding",))
        run.ledger.drop(("gradients",))


def _chunks(sizes: list[int]) -> Iterator[list[int]]:
    """Weights in the portions that `KahanSum` and its like step: at most `CHUNK` elements, or one weight."""
    part: list[int] = []
    for size in sizes:
        if part and sum(part) + size > CHUNK:
            yield part
            part = []
        part.append(size)
    if part:
        yield part
