"""Under what a step ran: versions, the command line, devices and the switches that change arithmetic."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import Any

import torch

from mixprec._version import __version__

__all__ = ["command", "rank", "switches", "versions"]

_PACKAGES = ("numpy", "triton", "accelerate", "lightning", "transformers", "deepspeed")


def versions() -> dict[str, str]:
    """Version of Python, torch, mixprec and what else computes, if it is loaded."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "mixprec": __version__}
    for name in _PACKAGES:
        if name in sys.modules:
            found[name] = metadata.version(name)
    return found


def command() -> dict[str, Any]:
    """How this process was started: interpreter, `argv` with the script first, whether by `-m`, working folder."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    module = spec is not None and spec.name not in ("__main__", None)
    name = str(spec.name).removesuffix(".__main__") if module and spec is not None else sys.argv[0]
    return {"python": sys.executable, "argv": [name, *sys.argv[1:]], "module": module, "cwd": os.getcwd()}


def switches() -> dict[str, Any]:
    """The global switches that change results, and the devices."""
    accelerator = torch.accelerator.current_accelerator()
    return {
        "device": "cpu" if accelerator is None else accelerator.type,
        "threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "capability": platform.machine() if accelerator is None else str(accelerator),
    }


def rank() -> tuple[int, int]:
    """(rank, number of ranks); (0, 1) where nothing is distributed."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0") or 0), int(os.environ.get("WORLD_SIZE", "1") or 1)
