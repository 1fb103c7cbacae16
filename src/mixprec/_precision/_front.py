"""A step is applied or skipped as a whole, on the gradients of its own window and nothing else, and says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec._autocast import autocast
from mixprec._hardware import probe, recommend
from mixprec._precision import _checks as checks
from mixprec._precision import _window as window
from mixprec._precision._mode import AUTO, Mode, mode_named
from mixprec._scaler import GradScaler
from mixprec.errors import MisuseError
from mixprec.records import StepReason, StepReport, StepValues

__all__ = ["Precision"]


class Precision:
    def __init__(
        self,
        mode: str = AUTO,
        *optimizers: Optimizer,
        model: nn.Module | None = None,
        device: torch.device | str | None = None,
        max_norm: float | None = None,
        accumulate: int = 1,
        scheduler: Any = None,
        policy: Any = None,
        scaler: GradScaler | None = None,
    ) -> None:
        checks.check_optimizers(optimizers)
        checks.check_max_norm(max_norm)
        checks.check_accumulate(accumulate)
        self.device = _device_of(device, model, optimizers)
        self.mode, self.reason = _chosen(mode, self.device)
        checks.check_parameters(self.mode, optimizers, checks.names_of(model, optimizers))
        self.optimizers = optimizers
        self.max_norm = max_norm
        self.policy = policy
        self.scaler = scaler if scaler is not None else _scaler(self.mode, self.device)
        self._scheduler = scheduler
        self._window = window.Window(accumulate)
        self._steps = 0

    def autocast(self) -> autocast:
        enabled = self.mode.lowered
        dtype = self.mode.compute if enabled else None
        return autocast(self.device.type, dtype, enabled, policy=self.policy)

    def backward(self, loss: Tensor, weight: float | None = None, total: float | None = None, **kwargs: Any) -> None:
        checks.check_loss(loss)
        if self._window.empty:
            self._zero_grad()
        self._window = window.with_weight(self._window, weight, total)
        share = window.share(self._window)
        scaled: Tensor = self.scaler.scale(loss if share == 1.0 else loss * share)
        scaled.backward(**kwargs)  # type: ignore[no-untyped-call] # torch leaves it untyped

    def step(self) -> StepReport:
        if self._window.current is None:
            raise MisuseError("MP170", "step", "step() was called before backward(loss).")
        if not self._window.last:
            self._window = window.next_micro_batch(self._window)
            return StepReport(StepValues(0.0, self.scaler.get_scale()), lambda v: v, step=self._steps, reason=StepReason.ACCUMULATING)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer, max_norm=self.max_norm)
        self.scaler.update()
        report = self.scaler.report(self.optimizers[0])
        self._window = window.next_micro_batch(self._window)
        self._steps += 1
        self._zero_grad()
        if self._scheduler is not None and report.applied:
            self._scheduler.step()
        return report

    def _zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)


def _chosen(name: str, device: torch.device) -> tuple[Mode, str]:
    if name != AUTO:
        return mode_named(name), f"{name} was asked for"
    found = recommend(probe(device))
    return mode_named(found.mode), found.reason


def _device_of(device: torch.device | str | None, model: nn.Module | None, optimizers: tuple[Optimizer, ...]) -> torch.device:
    if device is not None:
        return torch.device(device)
    for optimizer in optimizers:
        return optimizer.param_groups[0]["params"][0].device
    if model is not None:
        for parameter in model.parameters():
            return parameter.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _scaler(mode: Mode, device: torch.device) -> GradScaler:
    if mode.scaled:
        return GradScaler(device.type)
    return GradScaler(device.type, init_scale=1.0, min_scale=1.0, max_scale=1.0)
