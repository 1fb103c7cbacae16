"""Small models whose training is deterministic, and gradients that overflow on demand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def mlp() -> Callable[[], nn.Sequential]:
    """Makes the same small network each time."""

    def make() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))

    return make


@pytest.fixture
def batches() -> list[tuple[Tensor, Tensor]]:
    """Twelve batches of 16 samples."""
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(16, 8, generator=generator), torch.randn(16, 4, generator=generator)) for _ in range(12)]


class _Overflow(torch.autograd.Function):
    """The identity whose gradient is infinite."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]  # torch types it as *Any
        return gradient * float("inf")


@pytest.fixture
def overflow() -> Callable[[Tensor], Tensor]:
    """A loss that is what it was and has no finite gradient."""
    return _Overflow.apply  # type: ignore[no-any-return]  # torch leaves it untyped
