"""Our own measurements leave no trace: no graph, no autocast, no hooks of modes that the script or a tracer entered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["quiet"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ops inside are nobody's but ours."""
    with (
        torch.no_grad(),
        torch._C._DisableAutocast(),
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
    ):
        yield
