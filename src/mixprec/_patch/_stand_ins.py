"""What stands in a name of PyTorch's takes that name's arguments in their order, and makes ours with them.

A stand-in is a class of its own, so that undoing finds what it put somewhere and nothing else, and `isinstance` asks
about the class that it stands for, so that objects from before and from outside count as they did.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.amp import autocast_mode, grad_scaler

from mixprec import _scaler
from mixprec._autocast import autocast as _autocast
from mixprec._policy import Policy

__all__ = [
    "PLACES",
    "CpuAutocast",
    "CpuGradScaler",
    "CudaAutocast",
    "CudaGradScaler",
    "GradScaler",
    "ShardedGradScaler",
    "autocast",
]

policies: list[Policy | str | None] = []
"""Those of the patches in force; the last is what regions get that say nothing of their own."""


class _StandsFor(type):
    """The class of stand-ins: each asks the class that it stands for who its instances are.

    It answers nothing about subclasses: Dynamo (torch 2.13) asks that to decide whether what `__new__` returned is
    initialised once more, which would take the policy away.
    """

    _stands_for: type

    def __instancecheck__(cls, instance: object) -> bool:
        original = cls.__dict__.get("_stands_for")
        return isinstance(instance, original) if original else super().__instancecheck__(instance)


class GradScaler(_scaler.GradScaler, metaclass=_StandsFor):
    """In the place of `torch.amp.GradScaler`."""

    _stands_for = grad_scaler.GradScaler


class CudaGradScaler(_scaler.GradScaler, metaclass=_StandsFor):
    """In the place of `torch.cuda.amp.GradScaler`, which takes no device."""

    _stands_for: type = torch.cuda.amp.GradScaler
    _device_type = "cuda"

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(self._device_type, init_scale, growth_factor, backoff_factor, growth_interval, enabled, **more)


class CpuGradScaler(CudaGradScaler):
    """In the place of `torch.cpu.amp.GradScaler`, which takes no device either."""

    _stands_for = torch.cpu.amp.grad_scaler.GradScaler
    _device_type = "cpu"


class ShardedGradScaler(_scaler.ShardedGradScaler, metaclass=_StandsFor):
    """In the place of `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`."""


class autocast(_autocast, metaclass=_StandsFor):  # noqa: N801 - keeps the name that it replaces
    """In the place of `torch.autocast`: a region of ours with the patch's policy, or with that which is in force."""

    _stands_for = autocast_mode.autocast

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _region(*args, **kwargs) if cls is autocast else super().__new__(cls)


class CudaAutocast(_autocast, metaclass=_StandsFor):
    """In the place of `torch.cuda.amp.autocast`, which takes no device and has its arguments in another order."""

    _stands_for = torch.cuda.amp.autocast

    def __new__(cls, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> Any:
        return _region("cuda", dtype, enabled, cache_enabled)


class CpuAutocast(_autocast, metaclass=_StandsFor):
    """In the place of `torch.cpu.amp.autocast`."""

    _stands_for = torch.cpu.amp.autocast_mode.autocast

    def __new__(cls, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True) -> Any:
        return _region("cpu", dtype, enabled, cache_enabled)


def _region(
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
    **own: Any,
) -> _autocast:
    policy = policies[-1] if policies else None
    region = _autocast(device_type, dtype, enabled, cache_enabled, **{"policy": policy, **own})
    region._gives_way = True
    return region


PLACES: dict[str, type] = {
    "torch.GradScaler": GradScaler,
    "torch.amp.GradScaler": GradScaler,
    "torch.amp.grad_scaler.GradScaler": GradScaler,
    "torch.cuda.amp.GradScaler": CudaGradScaler,
    "torch.cuda.amp.grad_scaler.GradScaler": CudaGradScaler,
    "torch.cpu.amp.GradScaler": CpuGradScaler,
    "torch.cpu.amp.grad_scaler.GradScaler": CpuGradScaler,
    "torch.autocast": autocast,
    "torch.amp.autocast": autocast,
    "torch.cuda.amp.autocast": CudaAutocast,
    "torch.cpu.amp.autocast": CpuAutocast,
}
"""Where PyTorch hands the classes out, and what stands there under a patch.

`torch.amp.autocast_mode.autocast` stays: it is how torch.compile knows PyTorch's own region when it meets one.
"""

if torch.distributed.is_available():
    from torch.distributed.fsdp import sharded_grad_scaler

    ShardedGradScaler._stands_for = sharded_grad_scaler.ShardedGradScaler
    PLACES["torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler"] = ShardedGradScaler
