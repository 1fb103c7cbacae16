"""The loss scale as 0-dim tensors that `advance_` moves where they lie, number for number as the specification does.

Nothing here waits for the device but `ScaleTensors.read` and `raise_at_floor`. The tensors `scale` (float32) and
`clean_steps` (int32) are what `torch.amp.GradScaler` calls `_scale` and `_growth_tracker`: share them, and a state
dict of one loads into the other.

    tensors = ScaleTensors.start(rules, device)
    advance_(rules, tensors, found_inf)      # every step; found_inf: 0-dim float tensor, not 0 after an overflow
    raise_at_floor(rules, tensors)           # whenever the host looks anyway
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from typing_extensions import Self

from mixprec._loss_scale import AtMax, Event, Growth, Refill, Rules, State, floor_error, initial, on_device
from mixprec.formats import FP32

__all__ = ["EVENTS", "ScaleTensors", "advance_", "bound_", "raise_at_floor"]

EVENTS = (Event.HOLD, Event.GROW, Event.BACK_OFF, Event.TOLERATE, Event.LOWER)
"""What the code in an `event` tensor stands for: `EVENTS[int(event)]`."""

_BACK_OFF, _TOLERATE = EVENTS.index(Event.BACK_OFF), EVENTS.index(Event.TOLERATE)  # whether it grew is 0 or 1 by itself


@dataclass(frozen=True, eq=False)
class ScaleTensors:
    """A `State` on a device: four 0-dim tensors, `scale` float32 and the counts int32, changed in place by `advance_`.

    `allowance` and `floor_overflows` are read and written only under rules that use them.
    """

    scale: torch.Tensor
    clean_steps: torch.Tensor
    allowance: torch.Tensor
    floor_overflows: torch.Tensor

    @classmethod
    def start(cls, rules: Rules, device: torch.device | str, state: State | None = None) -> Self:
        """Tensors on `device` that hold `state`, by default the initial one. Cost: 4 small kernels, no host sync."""
        state = initial(on_device(rules)) if state is None else state

        def count(value: int) -> torch.Tensor:
            return torch.full((), value, dtype=torch.int32, device=device)

        return cls(
            torch.full((), state.scale, dtype=torch.float32, device=device),
            count(state.clean_steps),
            count(state.allowance),
            count(state.floor_overflows),
        )

    def read(self) -> State:
        """The state as Python numbers, exact. Cost: 1 host sync."""
        bits = self.scale.view(torch.int32)
        packed = torch.stack((bits, self.clean_steps, self.allowance, self.floor_overflows)).tolist()
        (scale,) = struct.unpack("<f", struct.pack("<i", packed[0]))
        return State(scale, packed[1], packed[2], packed[3])


def advance_(rules: Rules, tensors: ScaleTensors, found_inf: torch.Tensor, event: torch.Tensor | None = None) -> None:
    """Moves `tensors` in place past a step: the device's `advance(on_device(rules), …)`, which never raises.

    `found_inf` is a 0-dim tensor on the same device, not 0 after an overflow. `event`, if given, is a 0-dim int8
    tensor that receives an index into `EVENTS`. The scale has to lie within the rules' bounds (`bound_`).

    `floor_overflows` counts on past `floor_patience`; `raise_at_floor` turns it into the error when the host looks. A
    run whose gradients became finite before that is not stopped.

    **Cost**: no host sync. Rules like PyTorch's own (no tolerated overflows): 1 kernel, +1 for bounds, +1 for
    `Growth.AT_LEAST`, +4 for `floor_patience`, +5 for `event`. Any other rules: 20 to 40 small kernels.
    """
    rules = on_device(rules)
    if _moves_as_torch_does(rules):
        _advance_as_torch_(rules, tensors, found_inf, event)
    else:
        _advance_by_masks_(rules, tensors, found_inf, event)


def bound_(rules: Rules, tensors: ScaleTensors) -> None:
    """Brings `tensors` within what `rules` allow, after a load or a change of rules. Cost: 2 kernels, no host sync."""
    rules = on_device(rules)
    tensors.scale.clamp_(rules.min_scale, rules.max_scale)
    tensors.allowance.clamp_(max=rules.hysteresis - 1)


def raise_at_floor(rules: Rules, tensors: ScaleTensors) -> None:
    """Raises LossScaleFloorError if the scale has sat at its minimum for too long. Cost: 1 host sync."""
    if rules.floor_patience is None:
        return
    state = tensors.read()
    error = floor_error(rules, state.scale, state.floor_overflows)
    if error is not None:
        raise error


def _moves_as_torch_does(rules: Rules) -> bool:
    """Whether `torch._amp_update_scale_` and a clamp together are these rules."""
    if rules.hysteresis > 1 or rules.growth is Growth.EVERY:
        return False
    if rules.at_max is AtMax.CLAMP:
        return rules.max_scale * rules.growth_factor <= FP32.max  # torch's kernel refuses to grow beyond that
    return rules.max_scale == FP32.max


def _advance_as_torch_(
    rules: Rules, tensors: ScaleTensors, found_inf: torch.Tensor, event: torch.Tensor | None
) -> None:
    scale, clean_steps = tensors.scale, tensors.clean_steps
    before = scale.clone() if event is not None else scale
    if rules.floor_patience is not None:
        tensors.floor_overflows.add_(scale <= rules.min_scale).mul_(found_inf != 0)
    if rules.growth is Growth.AT_LEAST:
        clean_steps.clamp_(max=rules.growth_interval - 1)
    torch._amp_update_scale_(
        scale, clean_steps, found_inf, rules.growth_factor, rules.backoff_factor, rules.growth_interval
    )
    if rules.min_scale > 0.0 or rules.max_scale < FP32.max:
        scale.clamp_(rules.min_scale, rules.max_scale)
    if event is not None:
        event.copy_(scale > before).add_(found_inf != 0, alpha=_BACK_OFF)


def _advance_by_masks_(
    rules: Rules, tensors: ScaleTensors, found_inf: torch.Tensor, event: torch.Tensor | None
) -> None:
    """Every branch of the specification is a mask; each tensor is written once, at the end."""
    scale, allowance = tensors.scale, tensors.allowance
    found = found_inf != 0
    tolerated = found & (allowance > 0)
    backed_off = found & (allowance <= 0)
    clean_steps = torch.where(found, 0, tensors.clean_steps + 1)
    complete = _grows(rules, clean_steps)
    grown = torch.where(complete, _grown(rules, scale), scale)
    lower = _times(scale, rules.backoff_factor).clamp(min=rules.min_scale)

    if event is not None:
        event.copy_(grown > scale).add_(backed_off, alpha=_BACK_OFF).add_(tolerated, alpha=_TOLERATE)
    if rules.floor_patience is not None:
        tensors.floor_overflows.add_(backed_off & (scale <= rules.min_scale)).mul_(found)
    if rules.growth is not Growth.EVERY:
        clean_steps = torch.where(complete, 0, clean_steps)
    refilled = _refills(rules, found, complete, backed_off)
    allowance.copy_(torch.where(refilled, rules.hysteresis - 1, allowance - tolerated.to(torch.int32)))
    tensors.clean_steps.copy_(clean_steps)
    scale.copy_(torch.where(backed_off, lower, grown))


def _grows(rules: Rules, clean_steps: torch.Tensor) -> torch.Tensor:
    """Whether a growth interval is complete; never after an overflow, which leaves 0 clean steps."""
    if rules.growth is Growth.EVERY:
        return (clean_steps > 1) & ((clean_steps - 1) % rules.growth_interval == 0)
    if rules.growth is Growth.EXACTLY:
        return clean_steps == rules.growth_interval
    return clean_steps >= rules.growth_interval


def _grown(rules: Rules, scale: torch.Tensor) -> torch.Tensor:
    higher = _times(scale, rules.growth_factor)
    if rules.at_max is AtMax.CLAMP:
        return higher.clamp(max=rules.max_scale)
    return torch.where(higher <= FP32.round(rules.max_scale), higher, scale)


def _refills(rules: Rules, found: torch.Tensor, complete: torch.Tensor, backed_off: torch.Tensor) -> torch.Tensor:
    if rules.refill is Refill.AT_GROWTH:
        return complete
    return ~found if rules.refill is Refill.AT_CLEAN_STEP else ~found | backed_off


def _times(scale: torch.Tensor, factor: float) -> torch.Tensor:
    """`scale × factor` rounded once to float32; through float64 only where float32 cannot hold the factor."""
    return scale * factor if FP32.round(factor) == factor else (scale.double() * factor).float()
