"""What only the device knows of a step is read when the next one is about to be taken, so that the device never idles.

A fused optimizer decides on its device whether it steps. Where it skipped, weights and optimizer state stay as they
were until the next optimizer steps: who waits for the flag just before that finds them in place, and leaves the device
a whole forward and backward to work on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from mixprec.monitor._numbers import Flight, Numbers
from mixprec.monitor.incident._moment import Moment

__all__ = ["Late", "far", "finite_flag", "set_off"]


def far(tensors: Iterable[Tensor]) -> bool:
    """Whether reading any of `tensors` would wait for a device."""
    return any(not tensor.is_cpu for tensor in tensors)


def finite_flag(loss: Tensor) -> Flight:
    """Whether `loss` is finite, on its way to the host since now. **Cost** three small kernels and a copy."""
    return set_off(finite=[torch.isfinite(loss).all()])


def set_off(**named: Iterable[Tensor]) -> Flight:
    """Tensors of one number each, on their way to the host. **Cost** two kernels per dtype and a copy; no sync."""
    numbers = Numbers()
    for name, tensors in named.items():
        for tensor in tensors:
            numbers.add(name, tensor)
    return numbers.leave()


class Late:
    """A window that is over and not judged: its moment, what it takes to judge it, and the scaler's state then."""

    def __init__(self, moment: Moment, losses: tuple[Tensor, ...], flags: Iterable[Tensor]) -> None:
        self.moment = moment
        self.losses = losses
        self._flight = set_off(found_inf=flags, **_state(moment.scaler))

    def found_inf(self) -> bool:
        """Whether the step was skipped. **Cost** waits until the device is done with that step."""
        return any(flag > 0 for flag in self._flight.read()["found_inf"])

    def scaling(self) -> dict[str, Any]:
        """The entries of the scaler's `state_dict` that its update has changed since."""
        found = self._flight.read()
        scale, clean = found.get("scale"), found.get("clean")
        known: dict[str, Any] = {} if scale is None else {"scale": scale[0]}
        return known if clean is None else {**known, "_growth_tracker": int(clean[0])}


def _state(scaler: Any) -> dict[str, list[Tensor]]:
    """Scale and count of clean steps, copied, since the scaler writes to them in place."""
    named = {"scale": getattr(scaler, "_scale", None), "clean": getattr(scaler, "_growth_tracker", None)}
    return {name: [tensor.detach().clone()] for name, tensor in named.items() if isinstance(tensor, Tensor)}
