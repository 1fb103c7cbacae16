"""Gradients are read once per step, whole and before anybody divides or clips them, so that skipped steps count too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mixprec.monitor._numbers import Numbers
from mixprec.monitor._outputs import DTYPES
from mixprec.monitor._samples import counts_of, sampled

__all__ = ["GradientsRead", "local", "owned", "read_gradients"]


@dataclass
class GradientsRead:
    """What was read of an optimizer's gradients: owners in the order of the numbers, and in which state they were.

    `scaled`: they still carried the loss scale. `normed` and `sampled`: names, and sizes of samples, whose numbers are
    under ("norms", key), ("grad_amax", key) and ("grad_counts", key).
    """

    key: str
    scaled: bool
    normed: list[str] = field(default_factory=list)
    sampled: list[tuple[str, int]] = field(default_factory=list)


def local(tensor: Any) -> Tensor:
    """The part of a DTensor that this rank holds; any other tensor itself."""
    part = getattr(tensor, "_local_tensor", tensor)
    return part if isinstance(part, Tensor) else tensor


def owned(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of `optimizer` that have a dense gradient with elements."""
    return [
        p
        for group in optimizer.param_groups
        for p in group["params"]
        if p.grad is not None and p.grad.layout is torch.strided and p.grad.dtype in DTYPES and p.grad.numel()
    ]


def read_gradients(
    key: str,
    params: Sequence[Tensor],
    names: Mapping[int, str],
    numbers: Numbers,
    *,
    scaled: bool,
    elements: int,
    multiply: Tensor | None = None,
) -> GradientsRead:
    """Adds norms and, if `elements`, extremes and counts on samples, of the gradients of `params`.

    `multiply` brings samples of unscaled gradients to the size that they had when they were scaled.

    **Cost**: one read of the gradients for the norms and one for the extremes; small kernels for the samples.
    """
    read = GradientsRead(key, scaled)
    by_device: dict[tuple[torch.device, torch.dtype], list[tuple[str, Tensor]]] = {}
    for parameter in params:
        gradient = local(parameter.grad).detach()
        by_device.setdefault((gradient.device, gradient.dtype), []).append((names.get(id(parameter), "?"), gradient))
    for (_, dtype), owners in by_device.items():
        gradients = [gradient for _, gradient in owners]
        wide = {"dtype": torch.float32} if dtype in (torch.float16, torch.bfloat16) else {}
        numbers.add(("norms", key), torch.stack(torch._foreach_norm(gradients, **wide)))  # type: ignore[arg-type] # private, typed too narrowly
        read.normed += [name for name, _ in owners]
        if elements:
            _sample(key, owners, numbers, read, elements, multiply)
    return read


def _sample(
    key: str,
    owners: list[tuple[str, Tensor]],
    numbers: Numbers,
    read: GradientsRead,
    elements: int,
    multiply: Tensor | None,
) -> None:
    for _, gradient in owners:
        for end in torch.aminmax(gradient):
            numbers.add(("grad_amax", key), end)
    samples = [sampled(gradient, elements).to(torch.float32) for _, gradient in owners]
    if multiply is not None:
        factor = multiply.detach().to(samples[0].device, torch.float32)
        samples = [sample * factor for sample in samples]
    numbers.add(("grad_counts", key), counts_of(samples))
    read.sampled += [(name, sample.numel()) for (name, _), sample in zip(owners, samples, strict=True)]
