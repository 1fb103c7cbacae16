"""What runs again in backward runs under the policy that it ran under in forward.

PyTorch restores its own autocast state there: activation checkpointing around the recomputed function, `custom_bwd`
around a custom function's backward. A policy is recorded in forward beside that state and comes back with it. PyTorch
offers no hook for this, so three of its methods are wrapped, once, when the first region is entered:
- `_CheckpointFrame.__init__` (every non-reentrant checkpoint, selective ones too) and `CheckpointFunction.forward`
  (reentrant) are given a function to run again that brings the policy with it;
- `BackwardCFunction.apply`: where `custom_fwd` noted that forward used autocast, the policy of that moment comes back.

A recomputation has a cast cache of its own, so that nothing made in it is found by anybody else. PyTorch's cache is
emptied where a checkpoint begins and where it is recomputed: selective checkpointing counts ops, and a weight that is
cast in one of the two runs and found in the other breaks it (https://github.com/pytorch/pytorch/issues/193338).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils import checkpoint

from mixprec._autocast._interceptor import Interceptor, active_interceptors, exchange, undo
from mixprec._autocast._stale import own_cache

__all__ = ["install", "recorded"]


@functools.lru_cache(maxsize=1)
def install() -> None:
    """Wrap the three methods. The second call does nothing."""
    frame: Any = checkpoint._CheckpointFrame
    frame.__init__ = _frame_with_policy(frame.__init__)
    reentrant: Any = checkpoint.CheckpointFunction
    reentrant.forward = staticmethod(_forward_with_policy(reentrant.forward))
    backward: Any = BackwardCFunction
    backward._fwd_used_autocast = _NotedPolicy()
    backward.apply = _apply_with_policy(backward.apply)
    if hasattr(backward, "apply_boxed"):  # since torch 2.13
        backward.apply_boxed = _apply_with_policy(backward.apply_boxed)


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, to be run later under the policies that are active now, and under no other."""
    here = _snapshot()

    @functools.wraps(function)
    def under_policy(*args: Any, **kwargs: Any) -> Any:
        with _again(here):
            return function(*args, **kwargs)

    return under_policy


class _NotedPolicy:
    """The attribute in which `custom_fwd` notes whether forward used autocast; the policy is noted beside it."""

    _flag, _policy = "_fwd_used_autocast", "_fwd_used_policy"

    def __get__(self, context: Any, owner: type) -> Any:
        if context is None:
            return self
        if self._flag not in context.__dict__:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self._flag!r}")
        return context.__dict__[self._flag]

    def __set__(self, context: Any, used: bool) -> None:
        context.__dict__[self._flag] = used
        context.__dict__[self._policy] = _snapshot() if used else ()


def _frame_with_policy(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(frame: Any, recompute_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        torch.clear_autocast_cache()
        original(frame, recorded(recompute_fn), *args, **kwargs)

    return init


def _forward_with_policy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def forward(ctx: Any, run_function: Callable[..., Any], *args: Any) -> Any:
        outputs = original(ctx, run_function, *args)
        ctx.run_function = recorded(run_function)
        return outputs

    return forward


def _apply_with_policy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(self: Any, *args: Any) -> Any:
        policy = self.__dict__.get(_NotedPolicy._policy)
        if policy is None:
            return original(self, *args)
        with _again(policy):
            return original(self, *args)

    return apply


def _snapshot() -> tuple[Interceptor, ...]:
    """The active interceptors as they are now; they go on to other places, the snapshot does not."""
    return tuple(mode.again(mode.cache) for mode in active_interceptors())


@contextmanager
def _again(policy: tuple[Interceptor, ...]) -> Iterator[None]:
    torch.clear_autocast_cache()
    bindings = [binding for mode in policy for binding in mode.bindings]
    modes = [mode.again(own_cache()) for mode in policy]
    before = exchange(modes)
    for binding in bindings:
        binding.use(+1)
    try:
        yield
    finally:
        for binding in bindings:
            binding.use(-1)
        undo(before)
        for mode in modes:
            mode.cache.clear()
        torch.clear_autocast_cache()
