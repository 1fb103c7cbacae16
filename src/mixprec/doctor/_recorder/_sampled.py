"""What an optimizer step did to the weights, seen on a sample of them taken just before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from mixprec.doctor._recorder._numbers import sample

__all__ = ["Change", "Moved", "Sampled", "Stood", "decay_lost", "gradient_size"]

PARAMETERS = 32
ELEMENTS = 2048
LOW = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Change:
    """`ratio`: norm of the change over norm of the weights. `unchanged`: share of elements with a gradient other than
    0 that kept every bit, of 16-bit weights alone where there are any; None where no element had one.
    """

    ratio: float
    unchanged: float | None


class Sampled:
    """A sample of an optimizer's weights and of their gradients."""

    def __init__(self, optimizer: Optimizer) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._chosen = parameters[:: max(1, len(parameters) // PARAMETERS)][:PARAMETERS]
        self._before = [sample(p, ELEMENTS).clone() for p in self._chosen]
        self._moving = [sample(_gradient(p), ELEMENTS) != 0 for p in self._chosen]

    def change(self) -> Change | None:
        """What changed since; one sync."""
        if not self._chosen:
            return None
        sums = []
        some_low = any(before.dtype in LOW for before in self._before)
        for parameter, before, moving in zip(self._chosen, self._before, self._moving, strict=True):
            after = sample(parameter, ELEMENTS)
            if after.shape != before.shape or moving.shape != before.shape:
                continue
            moving = moving if before.dtype in LOW or not some_low else torch.zeros_like(moving)
            still = ((after == before) & moving).sum()
            delta = (after.double() - before.double()).square().sum()
            sums.append(
                torch.stack([delta, before.double().square().sum(), still.double(), moving.sum().double()]).cpu()
            )
        if not sums:
            return None
        delta, norm, still, moving = torch.stack(sums).sum(0).tolist()
        return Change(math.sqrt(delta / norm) if norm > 0 and delta >= 0 else 0.0, still / moving if moving else None)


@dataclass(frozen=True)
class Moved:
    """How far weights are from where they stood: norm of the difference over norm of the weights; None where either is
    not finite.
    """

    ratio: float | None


class Stood:
    """Where (a sample of) an optimizer's weights stood."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._before = [sample(p, FEW).clone() for p in _first(optimizer)]

    def moved(self, optimizer: Optimizer) -> Moved | None:
        """How far they have moved since; None where they have not. One sync."""
        after = [sample(p, FEW) for p in _first(optimizer)]
        if [a.shape for a in after] != [b.shape for b in self._before] or not after:
            return None
        sums = [
            torch.stack([(a.double() - b.double()).square().sum(), b.double().square().sum()]).cpu()
            for a, b in zip(after, self._before, strict=True)
        ]
        delta, norm = torch.stack(sums).sum(0).tolist()
        if delta == 0 or not math.isfinite(norm):
            return None
        return Moved(math.sqrt(delta / norm) if math.isfinite(delta) and norm > 0 else None)


def gradient_size(optimizer: Optimizer) -> float | None:
    """2-norm of (a sample of) an optimizer's gradients; None where there are none, or not finite ones. One sync."""
    parts = [sample(p.grad, FEW).double().square().sum().cpu() for p in _first(optimizer) if p.grad is not None]
    size = math.sqrt(total) if parts and (total := float(torch.stack(parts).sum())) >= 0 else 0.0
    return size if 0 < size < math.inf else None


FEW = 256


def _first(optimizer: Optimizer) -> list[Tensor]:
    """A few of its parameters."""
    every = [p for group in optimizer.param_groups for p in group["params"] if p.is_floating_point()]
    return every[:: max(1, len(every) // 8)][:8]


def decay_lost(optimizer: Optimizer) -> float | None:
    """Which share of (sampled) weights the decay of a step leaves bit-identical: AdamW's product is taken on a copy.

    None where no weight decays by a product of its own; a fused optimizer rounds once for all. One sync.
    """
    kept = [
        torch.stack([((before * factor) == before).sum(), torch.tensor(before.numel(), device=before.device)]).cpu()
        for before, factor in _decaying(optimizer)
    ]
    if not kept:
        return None
    same, count = torch.stack(kept).sum(0).tolist()
    return float(same / count) if count else None


def _decaying(optimizer: Optimizer) -> Iterator[tuple[Tensor, float]]:
    """(sample of a weight without its zeros, factor by which the step multiplies it)."""
    named = type(optimizer).__name__ == "AdamW"
    for group in optimizer.param_groups:
        decay, rate = group.get("weight_decay"), group.get("lr")
        if not decay or rate is None or group.get("fused") or not (named or group.get("decoupled_weight_decay")):
            continue
        chosen = [p for p in group["params"] if p.grad is not None]
        for parameter in chosen[:: max(1, len(chosen) // PARAMETERS)][:PARAMETERS]:
            before = sample(parameter, ELEMENTS)
            yield before[before != 0], 1.0 - float(rate) * float(decay)


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
