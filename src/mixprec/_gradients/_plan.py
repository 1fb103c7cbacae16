"""How gradients are best read depends on their parameters only, so it is worked out once per optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from mixprec._gradients._parameters import parameters

SMALL = 32768
"""Below this many elements, copying tensors into one costs less than a kernel for each."""

BLOCK = 32768
"""Up to so many elements in all, a block for a copy of them is kept."""

PIECE = 8192
"""Elements that BLAS adds up in float32 as exactly as rows of 2048 are: equal numbers, its worst case, to 3.5e-6."""

FEW = 32
"""Up to so many small tensors are flattened into one by one call; more are concatenated by kind of shape."""

HOST_READS = frozenset({"cpu", "mps"})
"""Device types whose gradients the host reads, waiting for them where it has to: MPS has no float64."""


@dataclass(frozen=True)
class Block:
    """Memory for a copy of the gradients of a small network: a view like each gradient, and its pieces.

    Copying there and reading them are light kernels that allocate nothing: together a third of what flattening and row
    norms took in a step of a 6-tensor network.
    """

    views: list[Tensor]
    pieces: list[Tensor]

    @classmethod
    def like(cls, params: list[Tensor]) -> Block:
        """For `params`, in float32 at least."""
        sizes = [param.numel() for param in params]
        wide = torch.promote_types(params[0].dtype, torch.float32)
        with torch.inference_mode(False):
            row = torch.zeros(sum(sizes), dtype=wide, device=params[0].device)
            views = [view.view(param.shape) for view, param in zip(torch.split(row, sizes), params, strict=True)]
            return cls(views, list(torch.split(row, PIECE)))


@dataclass(frozen=True)
class Plan:
    """For parameters of one dtype on one device: the places of the large ones, and of small ones that can be joined.

    `small` has lists of places whose tensors differ only in their first dimension, so that concatenating them needs no
    view of each: 0.17 µs a tensor instead of 0.5. `block` is there if they are few and small.
    """

    looks: list[Any]
    dtype: torch.dtype
    device: torch.device
    large: list[int]
    small: list[list[int]]
    block: Block | None

    def holds(self, grads: list[Tensor]) -> bool:
        """Whether `grads` are those of all parameters, and like them: neither sparse nor with a graph nor elsewhere."""
        alike = list(map(_look, grads)) == self.looks and set(map(type, grads)) == {Tensor}
        return alike and grads[0].device == self.device

    def merged(self, tensors: list[Tensor]) -> list[Tensor]:
        """All elements of `tensors`, for which it holds: the large ones as they are, small ones put together."""
        small = [_joined([tensors[place] for place in places]) for places in self.small]
        return [tensors[place] for place in self.large] + small


def _joined(alike: list[Tensor]) -> Tensor:
    if len(alike) == 1:
        return alike[0]
    if len(alike) > FEW and alike[0].ndim:
        return torch.cat(alike)
    flat: Tensor = torch._C._nn.flatten_dense_tensors(alike)
    return flat


_look: Callable[[Tensor], Any] = attrgetter("shape", "dtype", "layout", "requires_grad")


class Plans:
    """The plan of each optimizer, made again when its parameters are others."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[list[int], Plan | None]] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], Plan | None]:
        """The parameters of `optimizer`, and the plan for them; None where they are too mixed for one.

        Raises: AssertionError for a parameter that is not a tensor.
        """
        params = [param for group in optimizer.param_groups for param in group["params"]]
        ids = list(map(id, params))
        known = self._known.get(optimizer)
        if known is None or known[0] != ids:
            known = self._known[optimizer] = (ids, make_plan(parameters(optimizer)))
        return params, known[1]


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
    brief = len(params) <= FEW and not large and sum(param.numel() for param in params) <= BLOCK
    block = Block.like(params) if brief and dtype.is_floating_point and device.type in HOST_READS else None
    looks = [(param.shape, dtype, torch.strided, False) for param in params]
    return Plan(looks, dtype, device, large, [places for places in joined if places], block)


def _by_shape(params: list[Tensor], places: list[int]) -> list[list[int]]:
    kinds: dict[object, list[int]] = {}
    for place in places:
        shape = params[place].shape
        kinds.setdefault(tuple(shape[1:]) if len(shape) else None, []).append(place)
    return list(kinds.values())
