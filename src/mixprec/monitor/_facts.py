"""What a run is, before its first step: where, with what, and which of how many ranks."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from mixprec._script import child
from mixprec._version import __version__
from mixprec.monitor.sinks import RunFacts

__all__ = ["run_facts"]


def run_facts(level: str, optimizers: Sequence[Optimizer], rank: int | None, first_step: int) -> RunFacts:
    """The facts as they are now; the rank is that of the process group or of the environment."""
    parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    number = child.rank() if rank is None else rank
    return RunFacts(
        started=time.time(),
        rank=number or 0,
        world=_world(),
        level=level,
        command=tuple(sys.argv),
        versions={"mixprec": __version__, "torch": torch.__version__, "python": platform.python_version()},
        device=_device(parameters),
        optimizers=tuple(type(optimizer).__name__ for optimizer in optimizers),
        parameters=sum(parameter.numel() for parameter in parameters),
        first_step=first_step,
    )


def _world() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdigit() else 1


def _device(parameters: Sequence[torch.Tensor]) -> str:
    first = next(iter(parameters), None)
    if first is None or first.device.type != "cuda":
        return "cpu" if first is None else first.device.type
    return str(torch.cuda.get_device_name(first.device))
