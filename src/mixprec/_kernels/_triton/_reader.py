"""What the read worked out on the way is handed to whoever asks for exactly that; any other question is PyTorch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mixprec._gradients import Clipping, Gradients, Reading, WaitlessReader
from mixprec._kernels._dense import dense
from mixprec._kernels._triton._read import Numbers, read
from mixprec._kernels._triton._tables import TYPES

__all__ = ["TritonReader"]


class TritonReader(WaitlessReader):
    """A `WaitlessReader` for one step that reads with Triton, and clips to `max_norm`.

    The last launch of a read does the arithmetic that follows if nobody else has a say: clip coefficient, divisor,
    multiplier. Where other readings or ranks join, the numbers that come back are others, and the reference goes on.
    """

    def __init__(self, below_one: bool, max_norm: float | None) -> None:
        super().__init__(below_one)
        self._max_norm = max_norm
        self._scale: Tensor | None = None
        self._coefficient: Tensor | None = None
        self._numbers: Numbers | None = None

    def read(self, gradients: Gradients, scale: Tensor | None, device: torch.device) -> Reading:
        self._numbers = None
        if gradients.devices() != {device} or not all(tensor.dtype in TYPES for tensor in gradients.tensors):
            return super().read(gradients, scale, device)
        tensors = [tensor if dense(tensor) else tensor.contiguous() for tensor in gradients.tensors]
        numbers = read(tensors, gradients.shares, scale, self._max_norm)
        self._numbers, self._scale = numbers, scale
        self._coefficient = None if self._max_norm is None else numbers.coefficient
        return Reading(numbers.found_inf, numbers.square_sum)

    def clipping(self, reading: Reading, scale: Tensor | None, max_norm: float | None) -> Clipping:
        known = self._numbers
        if known is None or not _same(reading, known) or scale is not self._scale:
            self._numbers = None
            return super().clipping(reading, scale, max_norm)
        return Clipping(known.norm, self._coefficient)

    def divisor(self, scale: Tensor, coefficient: Tensor | None) -> Tensor:
        known = self._known(scale, coefficient)
        return super().divisor(scale, coefficient) if known is None else known.divisor

    def multiplier(self, scale: Tensor | None, coefficient: Tensor | None) -> Tensor | None:
        known = self._known(scale, coefficient)
        return super().multiplier(scale, coefficient) if known is None else known.multiplier

    def tensor(self, number: Any, device: torch.device) -> Tensor:
        known = self._numbers
        if known is not None and number is known.found_inf and device == known.flag.device:
            return known.flag
        return super().tensor(number, device)

    def _known(self, scale: Tensor | None, coefficient: Tensor | None) -> Numbers | None:
        """The numbers of the last read, if they are those of this scale and coefficient."""
        nothing = scale is None and coefficient is None
        same = scale is self._scale and coefficient is self._coefficient
        return self._numbers if same and not nothing else None


def _same(reading: Reading, numbers: Numbers) -> bool:
    return reading.square_sum is numbers.square_sum and reading.found_inf is numbers.found_inf
