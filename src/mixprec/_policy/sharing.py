"""A policy says which casts consumers share; the cast cache does what it says."""

from __future__ import annotations

import enum

from mixprec.errors import UnknownNameError

__all__ = ["Sharing", "as_sharing"]


class Sharing(str, enum.Enum):
    """Which tensors are cast once for all the ops that read them.

    `WEIGHTS`: PyTorch's own heuristic: float32 leaves that require grad and are no views. Activations are cast anew
    for each consumer, so three projections of one activation save three 16-bit copies for backward.

    `EVERYTHING`: any tensor, for as long as it lives and its version stands. Three projections save one copy.
    """

    WEIGHTS = "weights"
    EVERYTHING = "everything"


def as_sharing(value: Sharing | str) -> Sharing:
    """`value` as a `Sharing`. Raises `UnknownNameError`."""
    try:
        return Sharing(value)
    except ValueError:
        raise UnknownNameError("casts", str(value), [s.value for s in Sharing]) from None
