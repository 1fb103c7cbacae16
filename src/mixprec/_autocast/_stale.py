"""No cast outlives the weight that it was made from: an optimizer step drops every cached cast, PyTorch's and ours.

Versions would not be enough. PyTorch's own cache does not look at them, and the fused optimizers change parameters
without raising a version (torch 2.13: `AdamW(fused=True).step()` leaves `parameter._version` as it was).

PyTorch's official global step hook is registered while a region or a cache of the user's is alive, and only then.
What it cannot see: optimizers that do not derive from `torch.optim.Optimizer`, and a step traced by torch.compile.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from mixprec._autocast._cache import CastCache

__all__ = ["forget_after_step", "own_cache", "watch_steps", "watched"]

_lock = threading.Lock()
_watchers = 0
_handle: Any = None
_hooks: Any = None
_caches: weakref.WeakSet[CastCache] = weakref.WeakSet()


def watch_steps(change: int) -> None:
    """One watcher more (+1) or less (-1). **Cost**: the hook put there for the first, taken away for the last."""
    global _watchers
    with _lock:
        _watchers += change
        if change > 0 and _watchers == 1:
            _put_hook()
        elif not _watchers:
            _handle.remove()


def _put_hook() -> None:
    """Register the hook; from the second time on under the id that it had first, at a twentieth of the cost."""
    global _handle, _hooks
    if _handle is None:
        _handle = register_optimizer_step_post_hook(forget_after_step)
        _hooks = _handle.hooks_dict_ref()
    _hooks[_handle.id] = forget_after_step


def own_cache() -> CastCache:
    """A new cache that forgets its copies after an optimizer step while somebody watches."""
    cache = CastCache()
    _caches.add(cache)
    return cache


def watched(cache: CastCache) -> CastCache:
    """`cache`, with steps watched for as long as it lives."""
    if cache not in _caches:
        _caches.add(cache)
        watch_steps(+1)
        weakref.finalize(cache, watch_steps, -1).atexit = False
    return cache


def forget_after_step(optimizer: object, args: object, kwargs: object) -> None:
    """Drop every cached cast. Called by PyTorch after each optimizer's `step`."""
    torch.clear_autocast_cache()
    for cache in tuple(_caches):
        cache.clear()
