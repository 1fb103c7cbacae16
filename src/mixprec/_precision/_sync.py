"""Ranks exchange gradients once per window, and a step never uses gradients that they have not exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn

from mixprec.errors import MisuseError

__all__ = ["Sync", "alone"]


def alone() -> bool:
    """Whether this process trains by itself."""
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


class Sync:
    """Switches a distributed model's exchange of gradients off and on: DDP's and FSDP's `no_sync`, FSDP2's setter."""

    def __init__(self, model: nn.Module | None) -> None:
        self._model: Any = model
        self._paused = False
        self.exchanged = True

    @contextmanager
    def paused(self, *, exchange: bool) -> Iterator[None]:
        """Without exchange inside, unless `exchange`."""
        if exchange or not (hasattr(self._model, "no_sync") or hasattr(self._model, "set_requires_gradient_sync")):
            yield
            return
        self._paused = True
        try:
            if hasattr(self._model, "no_sync"):
                with self._model.no_sync():
                    yield
            else:
                yield from self._without_fsdp2_sync()
        finally:
            self._paused = False

    def _without_fsdp2_sync(self) -> Iterator[None]:
        self._model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._model.set_requires_gradient_sync(True)

    def note_backward(self) -> None:
        """A backward has run: what it summed up is exchanged unless it was paused."""
        self.exchanged = not self._paused

    def require_exchanged(self) -> None:
        """Raises `MisuseError` where the last backward of the window was under `no_sync`."""
        if not self.exchanged:
            raise MisuseError(
                "MP160",
                "no_sync",
                "The window ends with a micro-batch that was under no_sync(), so ranks have not exchanged its "
                "gradients and would step apart. Say no_sync(last=True) for the last micro-batch before finish().",
            )
