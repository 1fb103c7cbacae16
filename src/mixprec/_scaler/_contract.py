"""How an optimizer is told that gradients carry a scale, and whether it may be told to skip by itself."""

from __future__ import annotations

import enum
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Contract(enum.Enum):
    """What an optimizer's `step` understands."""

    PLAIN = "plain"
    """Nothing: it takes the gradients as they are, so they are multiplied first and the step is skipped by us."""

    FUSED = "fused"
    """`optimizer.grad_scale` and `optimizer.found_inf`: it divides by one and skips by the other, on the device."""

    SCALER = "scaler"
    """A `grad_scaler` argument, torch's older contract: it does everything itself."""


def contract_of(optimizer: torch.optim.Optimizer) -> Contract:
    """The contract that `optimizer` declares by `_step_supports_amp_scaling`, as torch's scaler reads it."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        return Contract.PLAIN
    step: Any = optimizer.step
    return Contract.SCALER if _takes_scaler(getattr(step, "__func__", step)) else Contract.FUSED


@functools.lru_cache(maxsize=64)
def _takes_scaler(step: Callable[..., Any]) -> bool:
    return "grad_scaler" in inspect.signature(step).parameters


_ZERO_STATE = frozenset({torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad})
_TORCH_FUSED = _ZERO_STATE | {torch.optim.SGD}


def takes_no_flag(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `optimizer` is one of torch's, which take a `found_inf` of None to mean that nothing was found.

    It saves them correcting the step count of every parameter. Others may expect a tensor, as the contract says.
    """
    return type(optimizer) in _TORCH_FUSED


class SafeSkips:
    """Which fused optimizers may be told to skip a step: not those that would leave state of theirs uninitialised.

    torch's fused SGD allocates momentum with `empty_like` and expects the kernel to fill it; a kernel that skips does
    not, and the next step takes whatever was in memory for momentum. Adam, AdamW and Adagrad start from zeros. Of any
    other optimizer nothing is known until it has taken a step with a parameter, so until then the host decides.

    Source: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/optim/sgd.py (`_fused_sgd`)
    """

    def __init__(self) -> None:
        self._stepped: weakref.WeakKeyDictionary[torch.optim.Optimizer, set[int]] = weakref.WeakKeyDictionary()
        self._state: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()

    def may_skip(self, optimizer: torch.optim.Optimizer, params: list[Tensor]) -> bool:
        """Whether a skip inside `optimizer.step()` is harmless. Cost: Python only; nothing for Adam and Adagrad."""
        kind = type(optimizer)
        if kind in _ZERO_STATE:
            return True
        if kind is torch.optim.SGD and not any(group["momentum"] for group in optimizer.param_groups):
            return True
        if self._state.get(optimizer) != id(optimizer.state):
            return False
        stepped = self._stepped.get(optimizer, set())
        return all(id(param) in stepped for param in params if param.grad is not None)

    def stepped(self, optimizer: torch.optim.Optimizer, params: list[Tensor]) -> None:
        """To be called after a step of `optimizer` that was applied for certain."""
        if type(optimizer) in _ZERO_STATE:
            return
        if self._state.get(optimizer) != id(optimizer.state):
            self._state[optimizer] = id(optimizer.state)
            self._stepped[optimizer] = set()
        self._stepped[optimizer].update(id(param) for param in params if param.grad is not None)
