"""What reads and multiplies gradients is one object, and which one is said once, where a scaler is made."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from mixprec._gradients import Gradients, Reader, multiply_, reader_for
from mixprec._kernels._choice import Kernels
from mixprec.errors import InvalidValueError

__all__ = ["Means", "means_of"]


class Means:
    """PyTorch's own kernels: the reference for any other."""

    def reader(self, devices: Iterable[torch.device], *, below_one: bool, max_norm: float | None) -> Reader:
        """The reader for gradients on `devices`, in a step that clips to `max_norm`; see `reader_for`."""
        return reader_for(devices, below_one=below_one)

    def multiply_(self, gradients: Gradients, multiplier: Tensor, found_inf: Tensor) -> dict[torch.device, Tensor]:
        """See `mixprec._gradients.multiply_`."""
        return multiply_(gradients, multiplier, found_inf)


def means_of(kernels: Kernels, device_type: str) -> Means:
    """The means that `kernels` stands for, for gradients on `device_type`.

    Raises: InvalidValueError where it has none for that, MissingExtraError.
    """
    if kernels is Kernels.FOREACH:
        return Means()
    if kernels is Kernels.PIECES:
        advice = "It steps masters: Precision('bf16-master', optimizer, model=model, kernels='pieces')."
        raise InvalidValueError("kernels", kernels.value, "'foreach' or 'triton' for a scaler", advice)
    from mixprec._kernels._triton._means import triton_means  # needs an extra

    return triton_means(device_type)
