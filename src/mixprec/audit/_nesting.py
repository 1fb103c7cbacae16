"""A step that one optimizer takes inside another's belongs to the outer one: a wrapper steps what it wraps."""

from __future__ import annotations

from torch.optim import Optimizer

__all__ = ["Nesting"]


class Nesting:
    """The optimizers that are stepping now, each inside the one before it."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def begin(self, optimizer: Optimizer) -> bool:
        """`optimizer` begins to step; whether no other is stepping."""
        self._close(optimizer)  # its last step did not return
        self._open.append(id(optimizer))
        return len(self._open) == 1

    def end(self, optimizer: Optimizer) -> bool:
        """`optimizer` has stepped; whether no other still is."""
        self._close(optimizer)
        return not self._open

    def _close(self, optimizer: Optimizer) -> None:
        if id(optimizer) in self._open:
            del self._open[self._open.index(id(optimizer)) :]
