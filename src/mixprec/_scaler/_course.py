"""How the scale moves is said by rules: classic ones look at overflows, headroom ones at the largest magnitude as well.

A course is rules with what they remember beside the `State` that every scaler holds: the classic ones nothing, headroom
the largest magnitude of its growth interval, and those of the steps since the last update.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mixprec._gradients import host_number, moved
from mixprec._headroom import HeadroomRules, HeadroomState, advance_headroom
from mixprec._headroom_tensors import HeadroomTensors, advance_headroom_
from mixprec._loss_scale import Rules, State, advance
from mixprec._scale_tensors import ScaleTensors, advance_
from mixprec._scaler._settings import Saved
from mixprec.errors import InvalidValueError

_LARGEST = torch.finfo(torch.float32).max


class Course:
    """Classic rules."""

    needs_amax = False
    """Whether `note` has to be told the largest scaled magnitude of every step."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def change(self, **change: Any) -> None:
        """Takes other settings. Raises: InvalidValueError, and changes nothing."""
        self.rules = replace(self.rules, **change)

    def load(self, saved: Saved) -> State:
        """Takes the settings of a saved scaler; the state to go on from."""
        self.rules = saved.rules
        return saved.state

    def advance(self, state: State, found_inf: bool) -> State:
        """The state after a step, on the host. Raises: LossScaleFloorError."""
        return advance(self.rules, state, found_inf)[0]

    def advance_(self, tensors: ScaleTensors, found_inf: Tensor) -> None:
        """Moves `tensors` past a step where they lie. Cost: small kernels, no host sync."""
        advance_(self.rules, tensors, found_inf)

    def note(self, amax: Any) -> None:
        """The largest magnitude of scaled gradients: a number or a 0-dim tensor; None where nobody read it."""

    def rescale_(self, before: Tensor, after: Tensor) -> None:
        """The scale was set by hand."""

    def close(self) -> None:
        """The next iteration begins."""

    def numbers(self) -> tuple[float, ...]:
        """What is remembered. Cost: a host sync on accelerators for headroom."""
        return ()

    def take(self, *numbers: float) -> None:
        """Remembers `numbers` instead."""


class HeadroomCourse(Course):
    """Headroom rules; `rules` are the classic ones beneath them."""

    needs_amax = True

    def __init__(self, headroom: HeadroomRules) -> None:
        super().__init__(headroom.base)
        self._headroom = headroom
        self._peak: Tensor | None = None
        self._first_peak = 0.0
        self._noted: list[Any] = []

    def change(self, growth_factor: float = 2.0, **change: Any) -> None:
        if growth_factor != 2.0:
            advice = "Headroom moves the scale by whole bits, one at a time upwards."
            raise InvalidValueError("growth_factor", growth_factor, "2.0 under HeadroomRules", advice)
        self._headroom = replace(self._headroom, **change)
        self.rules = self._headroom.base

    def load(self, saved: Saved) -> State:
        """Of a classic scaler's settings none is taken, and the interval begins anew: its largest magnitude is lost."""
        if saved.peak is None:
            self.take(0.0)
            return replace(saved.state, clean_steps=0)
        self.change(growth_interval=saved.rules.growth_interval, backoff_factor=saved.rules.backoff_factor)
        self.take(saved.peak)
        return saved.state

    def advance(self, state: State, found_inf: bool) -> State:
        before = HeadroomState(state, *self.numbers())
        after, _ = advance_headroom(self._headroom, before, found_inf, self._amax())
        self.take(after.peak)
        return after.base

    def _amax(self) -> float:
        """The largest noted magnitude. Where none was noted, one that neither lowers the scale nor lets it grow."""
        noted = [host_number(amax) if isinstance(amax, Tensor) else amax for amax in self._noted]
        return max(noted, default=self._headroom.limit / 2.0)

    def advance_(self, tensors: ScaleTensors, found_inf: Tensor) -> None:
        device = tensors.scale.device
        peak = self._peak = self._tensor(self._first_peak, device) if self._peak is None else self._peak
        noted = [self._tensor(amax, device) for amax in self._noted or [self._headroom.limit / 2.0]]
        advance_headroom_(self._headroom, HeadroomTensors(tensors, peak), found_inf, torch.stack(noted).amax())

    @staticmethod
    def _tensor(number: Any, device: torch.device) -> Tensor:
        if isinstance(number, Tensor):
            return moved(number, device).to(torch.float32)
        return torch.full((), min(number, _LARGEST), dtype=torch.float32, device=device)

    def note(self, amax: Any) -> None:
        if amax is not None:
            self._noted.append(amax)

    def rescale_(self, before: Tensor, after: Tensor) -> None:
        if self._peak is not None:
            self._peak.mul_(after / before)
        elif self._first_peak:
            self._first_peak *= host_number(after) / host_number(before)

    def close(self) -> None:
        self._noted.clear()

    def numbers(self) -> tuple[float, ...]:
        return (self._first_peak if self._peak is None else host_number(self._peak),)

    def take(self, *numbers: float) -> None:
        (peak,) = numbers
        if self._peak is None:
            self._first_peak = peak
        else:
            self._peak.fill_(peak)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_peak": None, "_first_peak": self.numbers()[0], "_noted": []}


def course_of(rules: Rules | HeadroomRules) -> Course:
    """The course that `rules` say."""
    return HeadroomCourse(rules) if isinstance(rules, HeadroomRules) else Course(rules)
