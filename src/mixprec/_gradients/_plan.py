"""How gradients are best read depends on their parameters only, so it is worked out once per optimizer."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

SMALL = 32768
"""Below this many elements, copying tensors into one costs less than a kernel for each."""

BRIEF = 8192
"""Up to so many elements in all, float32 adds them up in one row exactly enough."""

FEW = 32
"""Up to so many small tensors are flattened into one by one call; more are concatenated by kind of shape."""


@dataclass(frozen=True)
class Plan:
    """For parameters of one dtype on one device: the places of the large ones, and of small ones that can be joined.

    `small` has lists of places whose tensors differ only in their first dimension, so that concatenating them needs no
    view of each: 0.17 µs a tensor instead of 0.5. `brief` says that all of them together are few float32 numbers.
    """

    ids: list[int]
    dtype: torch.dtype
    device: torch.device
    large: list[int]
    small: list[list[int]]
    brief: bool


class Plans:
    """The plan of each optimizer, made again when its parameters are others."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[torch.optim.Optimizer, Plan | None] = weakref.WeakKeyDictionary()

    def of(self, optimizer: torch.optim.Optimizer, params: list[Tensor]) -> Plan | None:
        """The plan for `params`, all the parameters of `optimizer`; None where they are too mixed for one."""
        ids = [id(param) for param in params]
        plan = self._known.get(optimizer)
        if plan is None or plan.ids != ids:
            plan = self._known[optimizer] = make_plan(params)
        return plan


def make_plan(params: list[Tensor]) -> Plan | None:
    """The plan for `params`; None if they have several dtypes or devices, or are not plain tensors."""
    kinds = {(param.dtype, param.device) for param in params}
    plain = all(type(param) in (Tensor, torch.nn.Parameter) and not param.is_complex() for param in params)
    if len(kinds) != 1 or not plain:
        return None
    ((dtype, device),) = kinds
    large = [place for place, param in enumerate(params) if param.numel() >= SMALL]
    small = [place for place, param in enumerate(params) if param.numel() < SMALL]
    joined = [small] if len(small) <= FEW else _by_shape(params, small)
    brief = len(params) <= FEW and sum(param.numel() for param in params) <= BRIEF and dtype is torch.float32
    ids = [id(param) for param in params]
    return Plan(ids, dtype, device, large, [places for places in joined if places], brief)


def _by_shape(params: list[Tensor], places: list[int]) -> list[list[int]]:
    kinds: dict[object, list[int]] = {}
    for place in places:
        shape = params[place].shape
        kinds.setdefault(tuple(shape[1:]) if len(shape) else None, []).append(place)
    return list(kinds.values())
