"""Whose gradients a backward pass changed, and through which scaler its loss had gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

__all__ = ["PLAIN", "Owners"]

PLAIN = -1
"""Stands for no scaler."""

PARAMETERS = 64
"""Of each optimizer, evenly spread, are looked at."""

Mark = tuple[tuple[int, int] | None, ...]


class Owners:
    """Which scalers' scales an optimizer's gradients carry since they were empty. Moves no number. **Cost** a walk over
    up to 64 parameters of each optimizer before and after a backward; no host sync.
    """

    def __init__(self) -> None:
        self._marks: dict[int, Mark] = {}
        self._carried: dict[int, set[int]] = {}
        self.given: set[int] = set()
        """Optimizers whose parameters were ever given a gradient."""

    def begins(self, optimizers: Iterable[tuple[int, Optimizer]]) -> None:
        """A backward begins; what was emptied by hand meanwhile carries nothing."""
        for number, optimizer in optimizers:
            self._marks[number] = mark = _mark(optimizer)
            if not any(mark):
                self._carried.pop(number, None)

    def ends(self, optimizers: Iterable[tuple[int, Optimizer]], scaler: int | None) -> None:
        """The backward is over; its loss was scaled by `scaler`, None: by none."""
        for number, optimizer in optimizers:
            if _mark(optimizer) != self._marks.get(number):
                self.given.add(number)
                self._carried.setdefault(number, set()).add(PLAIN if scaler is None else scaler)

    def cleared(self, number: int) -> None:
        """The gradients of this optimizer are empty, or were used."""
        self._carried.pop(number, None)

    def carried(self, number: int) -> list[int]:
        """The scalers whose scale is in its gradients; `PLAIN` for what none scaled."""
        return sorted(self._carried.get(number, ()))


def _mark(optimizer: Optimizer) -> Mark:
    """Identity and version of each gradient: backward changes the version, or puts another tensor there."""
    every: list[Any] = [p for group in optimizer.param_groups for p in group["params"]]
    return tuple(_state(p.grad) for p in every[:: max(1, len(every) // PARAMETERS)][:PARAMETERS])


def _state(gradient: Tensor | None) -> tuple[int, int] | None:
    return None if gradient is None else (id(gradient), gradient._version)
