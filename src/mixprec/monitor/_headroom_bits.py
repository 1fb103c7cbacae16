"""Headroom is counted in bits: how many times a magnitude could double before it leaves its format."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mixprec.formats import find_format

__all__ = ["extreme", "headroom"]

_FP64_BITS = 1024.0


def headroom(format_name: str, *ends: float) -> float | None:
    """Bits between the largest magnitude of `ends` and the format's maximum.

    Minus infinity where that has left the format, None where all are 0.
    """
    if any(not math.isfinite(end) for end in ends):
        return -math.inf
    amax = max(map(abs, ends))
    if amax == 0.0:
        return None
    top = _FP64_BITS if format_name == "fp64" else math.log2(find_format(format_name).max)
    return top - math.log2(amax)


def extreme(values: Iterable[float]) -> float:
    """The value of the largest magnitude; NaN if any is, which Python's own `max` overlooks."""
    kept = list(values)
    return math.nan if any(math.isnan(value) for value in kept) else max(kept, key=abs)
