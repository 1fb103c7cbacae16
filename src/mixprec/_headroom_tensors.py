"""Headroom on a device: `advance_headroom_` moves the tensors as `advance_headroom` moves the state, without a sync."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from typing_extensions import Self

from mixprec._headroom import HeadroomRules, HeadroomState, initial_headroom
from mixprec._loss_scale import Event
from mixprec._scale_tensors import EVENTS, ScaleTensors, advance_

__all__ = ["HeadroomTensors", "advance_headroom_"]

_BACK_OFF, _LOWER = EVENTS.index(Event.BACK_OFF), EVENTS.index(Event.LOWER)  # whether it grew is 0 or 1 by itself


@dataclass(frozen=True, eq=False)
class HeadroomTensors:
    """A `HeadroomState` on a device; `peak` is a 0-dim float32 tensor, changed in place like those of `base`."""

    base: ScaleTensors
    peak: torch.Tensor

    @classmethod
    def start(cls, rules: HeadroomRules, device: torch.device | str, state: HeadroomState | None = None) -> Self:
        """Tensors on `device` that hold `state`, by default the initial one. Cost: 5 small kernels, no host sync."""
        state = initial_headroom(rules) if state is None else state
        peak = torch.full((), state.peak, dtype=torch.float32, device=device)
        return cls(ScaleTensors.start(rules.base, device, state.base), peak)

    def read(self) -> HeadroomState:
        """The state as Python numbers, exact. Cost: 2 host syncs."""
        return HeadroomState(self.base.read(), self.peak.item())


def advance_headroom_(
    rules: HeadroomRules,
    tensors: HeadroomTensors,
    found_inf: torch.Tensor,
    amax: torch.Tensor,
    event: torch.Tensor | None = None,
) -> None:
    """Moves `tensors` in place past a step: the device's `advance_headroom`, which never raises.

    `found_inf` as for `advance_`; `amax` is a 0-dim float32 tensor on the same device, the largest magnitude among the
    scaled gradients. `event`, if given, is a 0-dim int8 tensor that receives an index into `EVENTS`. The floor is read
    with `raise_at_floor(rules.base, tensors.base)`.

    **Cost**: about 35 small kernels, no host sync.
    """
    base, before = tensors.base, tensors.base.scale.clone()
    overflowed = (found_inf != 0) | ~amax.isfinite()
    advance_(rules.base, base, overflowed.to(torch.float32))

    crowded = ~overflowed & (amax >= rules.limit)
    peak = torch.where(overflowed, 0.0, torch.maximum(tensors.peak, amax))
    complete = ~overflowed & (base.clean_steps == 0)
    vetoed = complete & (2.0 * peak >= rules.limit)

    lowered = (before * _power_of_2(-_missing_bits(rules, amax))).clamp(min=rules.min_scale)
    scale = torch.where(crowded, lowered, torch.where(vetoed, before, base.scale))
    base.scale.copy_(scale)
    base.clean_steps.mul_(~crowded)
    tensors.peak.copy_(torch.where(complete | crowded, 0.0, peak))
    if event is not None:
        event.copy_(scale > before).add_(overflowed, alpha=_BACK_OFF).add_(crowded & (scale < before), alpha=_LOWER)


def _missing_bits(rules: HeadroomRules, amax: torch.Tensor) -> torch.Tensor:
    """By how many powers of 2 a finite `amax` has to come down to leave the headroom; int32, 0 where none is missing.

    Read off the exponent bits of float32, which is exact and which every device can do.
    """
    return (((amax / rules.limit).view(torch.int32) >> 23) - 126).clamp(min=0)


def _power_of_2(exponent: torch.Tensor) -> torch.Tensor:
    """2 to an int32 `exponent` from -126 to 127, built from its bits and so exact; 0 below that."""
    return ((exponent + 127).clamp(min=0) << 23).view(torch.float32)
