"""What is left open is chosen by the hardware and the mode, and everything chosen can be given instead."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec._hardware import probe, recommend
from mixprec._kernels import Kernels, MasterSteps
from mixprec._lowbit import LowBit
from mixprec._master import MasterWeights, lower_
from mixprec._precision._mode import AUTO, Mode, mode_named
from mixprec._scaler import GradScaler
from mixprec._schedule import Schedule
from mixprec.errors import InvalidValueError

__all__ = ["device_of", "listed", "master_steps_for", "masters_for", "mode_for", "scaler_for"]


def listed(scheduler: Schedule | Sequence[Schedule] | None) -> tuple[Schedule, ...]:
    if scheduler is None:
        return ()
    return tuple(scheduler) if isinstance(scheduler, Sequence) else (scheduler,)


def mode_for(name: str, device: torch.device) -> tuple[Mode, str]:
    try:
        native = recommend(probe(device))
    except (AssertionError, RuntimeError) as error:  # what PyTorch raises for a device that is not there
        raise InvalidValueError(
            "device", str(device), "a device of this machine", str(error).rstrip(".") + "."
        ) from error
    if name == AUTO:
        return mode_named(native.mode), native.reason
    return mode_named(name), f"{name} was asked for; auto would take {native.reason}"


def device_of(
    device: torch.device | str | None, model: nn.Module | None, optimizers: Sequence[Optimizer]
) -> torch.device:
    if device is not None:
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise InvalidValueError("device", device, "a type that PyTorch knows, such as 'cpu' or 'cuda:0'") from error
    parameters = [p for o in optimizers if isinstance(o, Optimizer) for g in o.param_groups for p in g["params"]]
    first: Tensor | None = next(iter(parameters or ([] if model is None else model.parameters())), None)
    if first is not None:
        return first.device
    return torch.device(torch.accelerator.current_accelerator() or "cpu")


def scaler_for(mode: Mode, device: torch.device, kernels: Kernels) -> GradScaler:
    """Where nothing is scaled, a scale that stays 1: the same path skips, clips and reports."""
    reading = Kernels.FOREACH if kernels is Kernels.PIECES else kernels
    if mode.scaled:
        return GradScaler(device.type, kernels=reading)
    return GradScaler(device.type, init_scale=1.0, min_scale=1.0, max_scale=1.0, kernels=reading)


def masters_for(mode: Mode, optimizers: Sequence[Optimizer], model: nn.Module | None) -> MasterWeights | None:
    """Of what the optimizers cannot keep themselves; `LowBit` ones can."""
    if not mode.masters:
        return None
    unaided = [optimizer for optimizer in optimizers if not isinstance(optimizer, LowBit)]
    if unaided:
        return MasterWeights(unaided, mode.weights, model)
    if model is not None:
        lower_(model, mode.weights)
    return None


def master_steps_for(
    kernels: Kernels, optimizers: Sequence[Optimizer], masters: MasterWeights | None
) -> MasterSteps | None:
    """How masters are stepped on 16-bit gradients, if that was asked for."""
    if masters is None or kernels is Kernels.FOREACH:
        return None
    return MasterSteps(kernels, optimizers, masters)
