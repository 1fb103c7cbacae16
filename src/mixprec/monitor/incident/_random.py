"""All random states that a step may draw from: Python's, NumPy's global one, torch's on the CPU and on each device."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["RandomStates"]


@dataclass(frozen=True)
class RandomStates:
    """The states at one moment. `numpy` is None where NumPy was not loaded; `devices` are by name (`cuda:0`)."""

    python: Any
    numpy: Any
    torch: Tensor
    devices: Mapping[str, Tensor]

    @staticmethod
    def now() -> RandomStates:
        """The states of this moment. **Cost** a copy of each: 2.5 kB of Python, 5 kB of torch on the CPU; no sync."""
        numpy = sys.modules.get("numpy")
        return RandomStates(
            python=random.getstate(),
            numpy=None if numpy is None else numpy.random.get_state(),
            torch=torch.get_rng_state(),
            devices={name: module.get_rng_state(index) for name, module, index in _devices()},
        )

    def restore(self) -> None:
        """Puts every state back; a device that this machine has not is passed over."""
        random.setstate(self.python)
        if self.numpy is not None:
            import numpy

            numpy.random.set_state(self.numpy)
        torch.set_rng_state(self.torch.cpu())
        for name, module, index in _devices():
            if name in self.devices:
                module.set_rng_state(self.devices[name].cpu(), index)


def _devices() -> list[tuple[str, Any, int]]:
    """(name, torch's module for it, index) of every accelerator in use by this process."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return []
    module = getattr(torch, accelerator.type)
    if not getattr(module, "is_initialized", lambda: True)():
        return []
    return [(f"{accelerator.type}:{index}", module, index) for index in range(module.device_count())]
