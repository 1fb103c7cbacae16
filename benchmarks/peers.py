"""Accelerate and Lightning Fabric run the phase that their users run, where they are installed.

`pip install -e .[bench]` installs them. Both use torch.amp's scaler. On a CPU both refuse float16, so their classes are
put together by hand as they do it on a GPU.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import torch
from torch import nn

__all__ = ["INSTALLED", "accelerate_phase", "fabric_phase"]


def accelerate_phase(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, max_norm: float | None
) -> Callable[[], None]:
    """`Accelerator.clip_grad_norm_` and `AcceleratedOptimizer.step`, of which the second contains `update`."""
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer

    params = list(model.parameters())
    accelerator = Accelerator(cpu=params[0].device.type == "cpu")
    prepared = AcceleratedOptimizer(optimizer, device_placement=False, scaler=scaler)

    def call() -> None:
        if max_norm is not None:
            scaler.unscale_(optimizer)  # clip_grad_norm_ does it, where the accelerator's mode is fp16
            accelerator.clip_grad_norm_(params, max_norm)
        prepared.step()

    return call


def fabric_phase(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, max_norm: float | None
) -> Callable[[], None]:
    """`Fabric.clip_gradients` and `step`, of which the second contains `update`.

    With a fused optimizer Fabric refuses to clip. By default it also raises where gradients overflowed, so that the
    scaler never gets to skip; `error_if_nonfinite=False` is what users of float16 have to write.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about packages that it would like better
        from lightning.fabric import Fabric
        from lightning.fabric.plugins.precision.amp import MixedPrecision

        device = next(model.parameters()).device.type
        precision = MixedPrecision("16-mixed", device, scaler)
        fabric = Fabric(accelerator=device, devices=1, plugins=precision)
        module, prepared = fabric.setup(model, optimizer)

    def call() -> None:
        if max_norm is not None:
            fabric.clip_gradients(module, prepared, max_norm=max_norm, error_if_nonfinite=False)
        prepared.step()

    return call


INSTALLED = {
    name: phase
    for name, package, phase in (
        ("Accelerate", "accelerate", accelerate_phase),
        ("Fabric", "lightning", fabric_phase),
    )
    if importlib.util.find_spec(package)
}
"""What can take part here."""
