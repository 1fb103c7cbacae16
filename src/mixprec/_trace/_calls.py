"""Which torch function the user's code called, and in which autocast region: both are lost below dispatch.

PyTorch's autocast kernels switch autocast off before they redispatch, so a dispatch mode cannot see the region
(https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/autocast_mode.h, `ExcludeDispatchKeyGuard`). A
function mode runs above them.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Call", "Calls"]


class Call(NamedTuple):
    """The torch function being called and the autocast dtype around it, by device type."""

    name: str | None = None
    autocast: tuple[tuple[str, str], ...] = ()

    def autocast_on(self, device_type: str) -> str | None:
        """The dtype that autocast casts to on this device type; None outside a region."""
        return dict(self.autocast).get(device_type)


_NONE = Call()


class Calls(TorchFunctionMode):
    """Remembers, per thread, the outermost torch function that is running. **Cost** one Python call more per call."""

    def __init__(self) -> None:
        super().__init__()
        accelerator = torch.accelerator.current_accelerator()
        self._devices = ("cpu",) if accelerator is None else ("cpu", accelerator.type)
        self._local = threading.local()

    @property
    def current(self) -> Call:
        """The call that is running in this thread."""
        call: Call = getattr(self._local, "call", _NONE)
        return call

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.current
        self._local.call = Call(getattr(func, "__name__", None), self._regions())
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._local.call = before

    def _regions(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (device, str(torch.get_autocast_dtype(device)).removeprefix("torch."))
            for device in self._devices
            if torch.is_autocast_enabled(device)
        )
