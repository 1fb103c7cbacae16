"""A recorded stream is replayed under any rules without training again: what a scale does to it follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"

LOWEST = -64
"""Exponent of the first bin: it holds magnitudes below 2**-63, the last one those from 2**15."""
BINS = 80
STRIDE = 10
"""Magnitudes are counted in every 10th step; the largest is known for all."""

FP16_TINY = -14
"""Float16 is subnormal below 2**-14."""
FP16_ZERO = -25
"""Float16 rounds to zero up to 2**-25."""
FP16_OVERFLOW = 65520.0
"""What float16 rounds to infinity."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Stream:
    """Unscaled gradient magnitudes of a training in float32.

    `weights` are those that the optimizer and the loss-scale rules see, `activations` those of the 16-bit results that
    the backward pass goes through: either can overflow. `*_amax` has a number per step, `*_counts` a row of `BINS` for
    every `STRIDE`-th.
    """

    name: str
    weights_amax: Array
    activations_amax: Array
    weights_counts: Array
    activations_counts: Array

    @property
    def steps(self) -> int:
        """Recorded steps."""
        return len(self.weights_amax)

    def reach(self, step: int) -> float:
        """The largest magnitude in float16 in the backward pass of `step`."""
        return float(max(self.weights_amax[step], self.activations_amax[step]))

    def lost(self, step: int, scale: float) -> tuple[int, int, int] | None:
        """(elements that `scale` leaves zero, that it leaves subnormal, all), of weights; None in uncounted steps."""
        if step % STRIDE:
            return None
        counts = self.weights_counts[step // STRIDE]
        shift = round(float(np.log2(scale)))
        zero = int(counts[: max(0, FP16_ZERO - shift - LOWEST)].sum())
        tiny = int(counts[: max(0, FP16_TINY - shift - LOWEST)].sum())
        return zero, tiny - zero, int(counts.sum())


def streams(folder: Path = DATA) -> list[Stream]:
    """Every recorded stream, by name."""
    return [Stream(path.stem, **np.load(path)) for path in sorted(folder.glob("*.npz"))]
