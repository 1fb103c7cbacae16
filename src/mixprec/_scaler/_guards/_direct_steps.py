"""While a scaler watches for it, every optimizer step in the process is looked at; ours are known and let through."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Watcher(Protocol):
    """What wants to know of steps that no scaler takes."""

    def refuse_direct_step(self, optimizer: torch.optim.Optimizer) -> None:
        """May raise."""


_watchers: weakref.WeakSet[Any] = weakref.WeakSet()
_ours: set[int] = set()
_hook: Any = None


def watch(watcher: Watcher) -> None:
    """Tells `watcher` of direct steps as long as it lives; the hook is there only while there is a watcher."""
    global _hook
    _watchers.add(watcher)
    weakref.finalize(watcher, _release).atexit = False
    if _hook is None:
        _hook = register_optimizer_step_pre_hook(_before_step)


def _release() -> None:
    global _hook
    if _hook is not None and not any(True for _ in _watchers):
        _hook.remove()
        _hook = None


class taken_by_scaler:  # noqa: N801 # reads as what it says: `with taken_by_scaler(optimizers)`
    """A step of one of `optimizers` inside is a scaler's."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._ids = [id(optimizer) for optimizer in optimizers if id(optimizer) not in _ours]

    def __enter__(self) -> None:
        _ours.update(self._ids)

    def __exit__(self, *error: object) -> None:
        _ours.difference_update(self._ids)


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if id(optimizer) in _ours or torch.compiler.is_compiling():
        return
    for watcher in tuple(_watchers):
        watcher.refuse_direct_step(optimizer)
