"""Where gradients lie on a CUDA device in a dtype that the kernels know, Triton reads and multiplies them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from mixprec._gradients import Gradients, Reader, moved, reader_for
from mixprec._gradients import multiply_ as reference_multiply_
from mixprec._kernels._dense import dense
from mixprec._kernels._means import Means
from mixprec._kernels._triton._jit import INTERPRETED
from mixprec._kernels._triton._multiply import multiply_
from mixprec._kernels._triton._reader import TritonReader
from mixprec._kernels._triton._tables import TYPES
from mixprec.errors import InvalidValueError

__all__ = ["TritonMeans", "triton_means"]


def triton_means(device_type: str) -> TritonMeans:
    """Raises: InvalidValueError for devices other than CUDA; in Triton's interpreter the CPU is accepted."""
    if not _runs_on(device_type):
        raise InvalidValueError("kernels", "triton", f"'foreach' on the device {device_type!r}", "Triton is for CUDA.")
    return TritonMeans()


class TritonMeans(Means):
    """Triton's kernels; PyTorch's for what they cannot take: float64, other devices, inside torch.compile."""

    def reader(self, devices: Iterable[torch.device], *, below_one: bool, max_norm: float | None) -> Reader:
        """See `Means`."""
        devices = set(devices)
        if torch.compiler.is_compiling() or not all(_runs_on(device.type) for device in devices):
            return reader_for(devices, below_one=below_one)
        return TritonReader(below_one, max_norm)

    def multiply_(self, gradients: Gradients, multiplier: Tensor, found_inf: Tensor) -> dict[torch.device, Tensor]:
        """See `Means`."""
        if torch.compiler.is_compiling():
            return reference_multiply_(gradients, multiplier, found_inf)
        flags: dict[torch.device, Tensor] = {}
        for device, part in gradients.by_device().items():
            flag = found_inf.clone() if found_inf.device == device else moved(found_inf, device)
            fit = [tensor for tensor in part.tensors if _runs_on(device.type) and _fits(tensor)]
            multiply_(fit, moved(multiplier, device), flag)
            other = [tensor for tensor in part.tensors if not any(tensor is taken for taken in fit)]
            flags[device] = reference_multiply_(Gradients(other), multiplier, flag).get(device, flag)
        return flags


def _fits(tensor: Tensor) -> bool:
    return tensor.dtype in TYPES and dense(tensor)


def _runs_on(device_type: str) -> bool:
    return device_type == "cuda" or (INTERPRETED and device_type == "cpu")
