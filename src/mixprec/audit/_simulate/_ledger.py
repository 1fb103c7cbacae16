"""What exists now, and the most that ever existed."""

from __future__ import annotations

__all__ = ["Key", "Ledger"]

Key = tuple[object, ...]
"""A piece of memory: ("v", storage) a value, ("c", …) a copy for one op, ("w", storage) a cached cast of a weight."""


class Ledger:
    """Pieces of memory by key. `now` and `peak` are bytes."""

    def __init__(self) -> None:
        self.live: dict[Key, int] = {}
        self.now = 0
        self.peak = 0

    def hold(self, key: Key, size: int) -> None:
        """The piece exists from now on; one that exists already is the same piece."""
        if key not in self.live and size:
            self.live[key] = size
            self.now += size
            self.peak = max(self.peak, self.now)

    def drop(self, key: Key) -> None:
        """The piece is gone, if it was there."""
        self.now -= self.live.pop(key, 0)
