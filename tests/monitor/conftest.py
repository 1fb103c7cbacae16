"""Small trainings that a monitor watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mixprec.monitor import Monitor


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Training:
    """A classifier of noise under `scaler`, watched at every step."""

    def __init__(self, scaler: Any = None, dtype: torch.dtype | None = None, **monitor: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, fused=monitor.pop("fused", False))
        self.scaler, self.dtype = scaler, dtype
        self.losses: list[float] = []
        self.monitor = Monitor(self.model, self.optimizer, **{"level": "deep", **monitor})

    def loss(self, factor: float = 1.0) -> torch.Tensor:
        inputs = torch.randn(16, 8)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype is not None):
            return F.cross_entropy(self.model(inputs), inputs[:, :4].argmax(1)) * factor

    def step(self, factor: float = 1.0, spoil: Callable[[nn.Module], None] | None = None) -> None:
        loss = self.loss(factor)
        self.losses.append(loss.item())
        self.optimizer.zero_grad()
        scaler = self.scaler
        (loss if scaler is None else scaler.scale(loss)).backward()
        if spoil is not None:
            spoil(self.model)
        (self.optimizer.step if scaler is None else lambda: scaler.step(self.optimizer))()
        if scaler is not None:
            scaler.update()

    def run(self, steps: int, **how: Any) -> list[Any]:
        """The records of `steps` steps."""
        with self.monitor as monitor:
            for _ in range(steps):
                self.step(**how)
        return list(monitor.records)


@pytest.fixture
def training():
    """The class; monitors that a test leaves open are closed."""
    made: list[Training] = []

    def make(*args: Any, **kwargs: Any) -> Training:
        made.append(Training(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.monitor.close()
