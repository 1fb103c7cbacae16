"""A kernel is compiled once per constant it is given; numbers that vary from call to call are named, and are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton

__all__ = ["INTERPRETED", "kernel"]


def kernel(*varying: str) -> Callable[[Callable[..., Any]], Any]:
    """A function as a Triton kernel, or as a part of one. `varying` are its numbers that are not compiled in."""
    made: Callable[[Callable[..., Any]], Any] = triton.jit(do_not_specialize=list(varying))
    return made


@kernel()
def _nothing() -> None:
    """Shows what a kernel is here."""


INTERPRETED = not isinstance(_nothing, triton.JITFunction)
"""Whether kernels are run in Python by Triton's interpreter (TRITON_INTERPRET=1), which takes tensors on CPU."""
