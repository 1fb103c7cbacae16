"""Nothing runs on other kernels than PyTorch's own unless somebody asked for it by name."""

from __future__ import annotations

import enum

from mixprec.errors import UnknownNameError

__all__ = ["Kernels", "chosen"]


class Kernels(str, enum.Enum):
    """Whose kernels read, multiply and step; all give the results of `FOREACH`."""

    FOREACH = "foreach"
    """PyTorch's own, over whole lists of tensors. The reference, and the default."""

    PIECES = "pieces"
    """PyTorch's own fused AdamW on masters, over pieces that stay in a processor's cache. For CPU."""

    TRITON = "triton"
    """Written in Triton, for CUDA; needs the `kernels` extra. Measured on no GPU yet."""


def chosen(kernels: Kernels | str) -> Kernels:
    """The member that `kernels` is or names. Raises: UnknownNameError."""
    known = [member.value for member in Kernels]
    if kernels not in known:
        raise UnknownNameError("kernels", str(kernels), known)
    return Kernels(kernels)
