"""What a cast does to a tensor is counted: what overflows, what is flushed to zero, how much of it is lost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LOSS_LIMIT", "Survival", "survival"]

LOSS_LIMIT = 8.0
"""A tensor is lost where its relative error is above this many spacings of the format; rounding stays below 1/2."""


@dataclass(frozen=True)
class Survival:
    """What became of the elements of one tensor in a 16-bit dtype.

    `overflowed`: finite before and infinite after. `flushed`: not zero before and zero after. `subnormal`: below the
    smallest normal number, where precision falls. `relative_error` is ‖after − before‖ ÷ ‖before‖ over what is finite.
    `amax` is the largest finite magnitude.
    """

    dtype: str
    numel: int
    overflowed: int
    flushed: int
    subnormal: int
    amax: float
    relative_error: float

    @property
    def survives(self) -> bool:
        """Whether nothing overflowed and no more was lost than rounding takes."""
        eps = torch.finfo(getattr(torch, self.dtype)).eps
        return self.overflowed == 0 and self.relative_error <= LOSS_LIMIT * eps

    @property
    def reason(self) -> str:
        """Why it does not survive; empty where it does."""
        if self.overflowed:
            return f"{self.overflowed} of {self.numel} values overflow {self.dtype}: the largest is {self.amax:.4g}"
        if not self.survives:
            return (
                f"{self.flushed} of {self.numel} values are flushed to zero in {self.dtype}, {self.subnormal} are "
                f"subnormal: the relative error is {self.relative_error:.2g}"
            )
        return ""


@torch.no_grad()
def survival(tensor: Tensor, dtype: torch.dtype) -> Survival:
    """What casting `tensor`, floating-point of any shape, to `dtype` does to it.

    **Cost**: about ten passes over it, temporary memory of three times its size, one host sync.
    """
    full = tensor.detach().reshape(-1).to(torch.float32)
    low = full.to(dtype)
    back = low.to(torch.float32)
    kept = torch.isfinite(full) & torch.isfinite(back)
    before, after = torch.where(kept, full, 0.0), torch.where(kept, back, 0.0)
    norm = torch.linalg.vector_norm(before)
    finite = torch.where(torch.isfinite(full), full, 0.0)
    counts = (
        (torch.isinf(back) & torch.isfinite(full)).sum(),
        ((back == 0) & (full != 0)).sum(),
        ((back != 0) & (back.abs() < torch.finfo(dtype).tiny)).sum(),
        finite.abs().amax() if full.numel() else full.new_zeros(()),
        torch.linalg.vector_norm(after - before) / norm.clamp_min(torch.finfo(torch.float32).tiny),
    )
    overflowed, flushed, subnormal, amax, error = torch.stack([c.to(torch.float64) for c in counts]).tolist()
    name = str(dtype).removeprefix("torch.")
    return Survival(name, full.numel(), int(overflowed), int(flushed), int(subnormal), amax, error)
