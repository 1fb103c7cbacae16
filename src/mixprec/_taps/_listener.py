"""A listener hears what a training script does to torch; what it does not override is not tapped and costs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = ["Listener", "heard"]


class Listener:
    """Override what you want to hear. Every method is called in the thread of the call that it tells of.

    An exception in a method never reaches the script: `failed` is told. Only a BaseException that is no Exception
    passes through, which is how a listener ends a script. `mixprec._trace.user_site()` inside a method is the line
    of the script that led to it.
    """

    def failed(self, event: str, error: Exception) -> None:
        """`error` was raised by this listener's method `event`."""

    # scaler: torch.amp.GradScaler, its subclasses, and mixprec's

    def scaler_created(self, scaler: Any) -> None:
        """A scaler was built."""

    def before_scale(self, scaler: Any, outputs: Any) -> None:
        """`scaler.scale(outputs)` begins."""

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """`scaler.scale(outputs)` returned `result`."""

    def before_unscale(self, scaler: Any, optimizer: Optimizer, by_step: bool) -> None:
        """`scaler.unscale_(optimizer)` begins; `by_step`: called by `scaler.step` and not by the script."""

    def unscaled(self, scaler: Any, optimizer: Optimizer, by_step: bool) -> None:
        """`scaler.unscale_(optimizer)` returned."""

    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """`scaler.step(optimizer)` begins."""

    def scaler_stepped(self, scaler: Any, optimizer: Optimizer, result: Any) -> None:
        """`scaler.step(optimizer)` returned `result`."""

    def before_update(self, scaler: Any, new_scale: Any) -> None:
        """`scaler.update(new_scale)` begins."""

    def updated(self, scaler: Any, new_scale: Any) -> None:
        """`scaler.update(new_scale)` returned."""

    def scale_read(self, scaler: Any, scale: float) -> None:
        """`scaler.get_scale()` returned `scale`."""

    def scaler_saved(self, scaler: Any, state: dict[str, Any]) -> None:
        """`scaler.state_dict()` returned `state`."""

    def scaler_restored(self, scaler: Any, state: dict[str, Any]) -> None:
        """`scaler.load_state_dict(state)` returned."""

    # optimizer and scheduler

    def optimizer_created(self, optimizer: Optimizer) -> None:
        """An optimizer was built."""

    def before_step(self, optimizer: Optimizer) -> None:
        """`optimizer.step()` begins; a fused optimizer under a scaler is called on a skipped step too, with the
        attributes `grad_scale` and `found_inf` set.
        """

    def stepped(self, optimizer: Optimizer) -> None:
        """`optimizer.step()` returned."""

    def gradients_cleared(self, owner: Optimizer | nn.Module) -> None:
        """`owner.zero_grad()` returned."""

    def optimizer_restored(self, optimizer: Optimizer) -> None:
        """`optimizer.load_state_dict()` returned."""

    def scheduler_created(self, scheduler: Any) -> None:
        """A learning-rate scheduler was built (its first `step` is part of that and is not told)."""

    def scheduler_stepped(self, scheduler: Any) -> None:
        """`scheduler.step()` returned."""

    # gradients

    def before_backward(self, outputs: tuple[Tensor, ...]) -> None:
        """`backward` of `outputs` begins."""

    def backward_done(self, outputs: tuple[Tensor, ...]) -> None:
        """`backward` of `outputs` returned."""

    def differentiated(self, outputs: tuple[Tensor, ...], create_graph: bool) -> None:
        """`torch.autograd.grad(outputs, ...)` returned."""

    def before_clip(self, parameters: tuple[Tensor, ...], limit: float, by: str) -> None:
        """Gradients are about to be clipped, `by` "norm" or "value"."""

    def clipped(self, parameters: tuple[Tensor, ...], limit: float, by: str, total_norm: Tensor | None) -> None:
        """Gradients were clipped; `total_norm` is what `clip_grad_norm_` returned."""

    # autocast

    def region_entered(self, region: torch.autocast) -> None:
        """An autocast region was entered."""

    def region_left(self, region: torch.autocast) -> None:
        """An autocast region was left."""

    # modules

    def before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`module` is about to compute, in forward or in a checkpoint's recompute."""

    def forward_done(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """`module` returned `output`."""

    def weights_restored(self, module: nn.Module, state: Any, result: Any) -> None:
        """`module.load_state_dict(state)` returned `result`: the keys that it missed and those it did not expect."""

    def converted(self, module: nn.Module, dtype: torch.dtype) -> None:
        """`module.half()`, `.bfloat16()`, `.float()`, `.double()` or `.to(dtype)` returned."""

    # data and files

    def batch_loaded(self, iterator: Any, batch: Any) -> None:
        """A DataLoader handed out `batch`."""

    def file_saved(self, value: Any) -> None:
        """`torch.save(value, ...)` returned."""

    def file_loaded(self, value: Any) -> None:
        """`torch.load(...)` returned `value`."""


def heard(listener: Listener, names: Iterable[str]) -> bool:
    """Whether `listener` overrides any of the methods `names`."""
    return any(getattr(type(listener), name) is not getattr(Listener, name) for name in names)
