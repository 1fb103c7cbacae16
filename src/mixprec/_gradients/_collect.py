"""The gradients of an optimizer are plain dense real tensors: what sparse, complex and DTensor gradients hold here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mixprec._gradients._parameters import parameter_name, parameters
from mixprec._gradients._plan import Plan
from mixprec.errors import HalfGradientsError


@dataclass(frozen=True, slots=True)
class Gradients:
    """Tensors on this rank that share memory with the gradients, so writing to them writes to the gradients.

    None of them has a graph, as gradients made with `create_graph` do.
    `shares[i]` is the part of `tensors[i]`'s square sum that counts here: 1/n where n ranks hold the same values.
    None means 1 for all. `plan`, if given, holds for exactly these tensors.
    """

    tensors: list[Tensor]
    shares: list[float] | None = None
    plan: Plan | None = None

    def devices(self) -> set[torch.device]:
        """Where they lie."""
        return {self.plan.device} if self.plan is not None else {tensor.device for tensor in self.tensors}

    def has_half(self) -> bool:
        """Whether any is float16."""
        dtypes = {self.plan.dtype} if self.plan is not None else {tensor.dtype for tensor in self.tensors}
        return torch.float16 in dtypes

    def by_device(self) -> dict[torch.device, Gradients]:
        """The same gradients, by device. Cost: no kernels."""
        devices = self.devices()
        if len(devices) <= 1:
            return dict.fromkeys(devices, self)
        return {device: self._where([t.device == device for t in self.tensors]) for device in devices}

    def _where(self, chosen: list[bool]) -> Gradients:
        tensors = [t for t, mine in zip(self.tensors, chosen, strict=True) if mine]
        if self.shares is None:
            return Gradients(tensors)
        return Gradients(tensors, [s for s, mine in zip(self.shares, chosen, strict=True) if mine])


def collect(
    params: Iterable[Tensor],
    *,
    share: Callable[[Tensor, Tensor], float] | None = None,
    coalesce: bool = False,
    plan: Plan | None = None,
) -> Gradients:
    """What the gradients of `params` hold on this rank; parameters without a gradient are passed over.

    `share` tells which part of a gradient's square sum counts on this rank; None means all of it. `coalesce` merges the
    duplicates of sparse gradients first, which replaces `.grad`: a norm needs it, since duplicates add up. Sparse
    float16 gradients are always coalesced: adding up their duplicates is where they overflow. `plan` is the plan for
    `params`, if there is one.

    **Cost**: no kernels but for sparse gradients; about 0.3 µs of Python per parameter.
    """
    if plan is not None and share is None:
        grads = [grad for param in params if (grad := param.grad) is not None]
        if plan.holds(grads):
            return Gradients(grads, plan=plan)
    held = [(param, grad) for param in params if (grad := param.grad) is not None]
    tensors = [grad if _is_plain(grad) else _local(param, grad, coalesce) for param, grad in held]
    shares = None if share is None else [share(param, grad) for param, grad in held]
    return Gradients(tensors, shares)


def _is_plain(grad: Tensor) -> bool:
    plain = type(grad) is Tensor and grad.layout is torch.strided
    return plain and not grad.is_complex() and not grad.requires_grad


def _local(param: Tensor, grad: Tensor, coalesce: bool) -> Tensor:
    """The dense real tensor that carries the values of `grad` on this rank."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(grad, distributed.DTensor):
        grad = _without_partial_sums(param, grad, distributed).to_local()
    if grad.layout is torch.sparse_coo:
        grad = _coalesced(param, grad) if coalesce or grad.dtype is torch.float16 else grad
        grad = grad._values()
    grad = grad.detach()
    return torch.view_as_real(grad) if grad.is_complex() else grad


def _without_partial_sums(param: Tensor, grad: Any, distributed: Any) -> Any:
    """A gradient whose parts have still to be added up across ranks, added up (a collective); others as they are."""
    if not any(placement.is_partial() for placement in grad.placements):
        return grad
    whole = [distributed.Replicate() if p.is_partial() else p for p in grad.placements]
    param.grad = grad.redistribute(placements=whole)
    return param.grad


def _coalesced(param: Tensor, grad: Tensor) -> Tensor:
    if not grad.is_coalesced():
        grad = grad.coalesce()
        param.grad = grad
    return grad


def refuse_half(optimizer: torch.optim.Optimizer) -> None:
    """Raises HalfGradientsError if any gradient of `optimizer` is float16."""
    half = [p for p in parameters(optimizer) if p.grad is not None and p.grad.dtype is torch.float16]
    if half:
        raise HalfGradientsError(tuple(parameter_name(optimizer, param) for param in half))
