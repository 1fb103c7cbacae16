"""The loss scale can be read off the gradients: the room left below the format's top decides, overflow is the fallback.

Classic rules learn that a scale is too high by losing a step, and take thousands of steps to try a higher one. Where
the largest scaled gradient magnitude `amax` of a step is known, the scale can come down before the overflow, and go up
as soon as there is room.

Headroom of n bits means: `amax` can double n times without leaving the format's top binade. It is there for what was
not measured: the gradients of activations, and the steps to come.

- A clean step that leaves less headroom lowers the scale at once, by as many powers of 2 as restore it (`LOWER`).
- Every `growth_interval` clean steps the scale doubles, if the largest `amax` of that interval leaves room for it.
- An overflow, or an `amax` that is not finite, backs off as the classic rules do.

    >>> rules = HeadroomRules(growth_interval=2)
    >>> state = initial_headroom(rules)
    >>> for amax in (900.0, 1000.0, 3000.0, 40000.0):
    ...     state, event = advance_headroom(rules, state, False, amax)
    ...     print(event.value, state.scale)
    hold 65536.0
    grow 131072.0
    hold 131072.0
    lower 16384.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from mixprec._loss_scale import Event, Rules, State, advance, initial
from mixprec.errors import InvalidValueError
from mixprec.formats import FP16, FP32, FloatFormat

__all__ = ["HeadroomRules", "HeadroomState", "advance_headroom", "initial_headroom"]


@dataclass(frozen=True)
class HeadroomRules:
    """How a loss scale follows the gradients' largest magnitude.

    `bits` is the headroom to keep in `format`, the format that gradients are computed in. The scale doubles at most
    once per `growth_interval` clean steps, is multiplied by `backoff_factor` after an overflow and stays within
    `min_scale` and `max_scale`; these and `init_scale` are powers of 2, so that scaling never rounds a gradient.
    `floor_patience` as in `Rules`.

    Raises: InvalidValueError for a field outside its range.
    """

    init_scale: float = 2.0**16
    bits: int = 3
    growth_interval: int = 50
    backoff_factor: float = 0.5
    min_scale: float = 1.0
    max_scale: float = 2.0**24
    floor_patience: int | None = 100
    format: FloatFormat = FP16

    def __post_init__(self) -> None:
        _check_powers_of_2(self)
        _check_bits(self)
        _ = self.base  # checks the rest

    @cached_property
    def base(self) -> Rules:
        """The classic rules that hold where headroom does not decide."""
        return Rules(
            init_scale=self.init_scale,
            backoff_factor=self.backoff_factor,
            growth_interval=self.growth_interval,
            min_scale=self.min_scale,
            max_scale=self.max_scale,
            floor_patience=self.floor_patience,
        )

    @property
    def limit(self) -> float:
        """The power of 2 that `amax` has to stay below (8192 for 3 bits in float16)."""
        return math.ldexp(1.0, self.format.max_exponent + 1 - self.bits)


@dataclass(frozen=True)
class HeadroomState:
    """The classic rules' state, and the largest `amax` of the growth interval so far, 0 at its start."""

    base: State
    peak: float = 0.0

    @property
    def scale(self) -> float:
        """The loss scale."""
        return self.base.scale


def initial_headroom(rules: HeadroomRules) -> HeadroomState:
    """The state before the first step."""
    return HeadroomState(initial(rules.base))


def advance_headroom(
    rules: HeadroomRules, state: HeadroomState, found_inf: bool, amax: float
) -> tuple[HeadroomState, Event]:
    """The state after a step, and what happened to the scale.

    `amax` is the largest magnitude among the step's gradients as `state.scale` scaled them, 0 or more. It is not looked
    at after an overflow, and one that is not finite is an overflow. Gradients that are all 0 leave all the room there
    is: the scale grows.

    Raises: LossScaleFloorError as `advance` does.
    """
    if found_inf or not math.isfinite(amax):
        return _overflowed(rules, state)
    return _crowded(rules, state, amax) if amax >= rules.limit else _roomy(rules, state, amax)


def _overflowed(rules: HeadroomRules, state: HeadroomState) -> tuple[HeadroomState, Event]:
    base, event = advance(rules.base, state.base, True)
    return HeadroomState(base), event


def _crowded(rules: HeadroomRules, state: HeadroomState, amax: float) -> tuple[HeadroomState, Event]:
    missing_bits = math.frexp(amax / rules.limit)[1]
    scale = max(math.ldexp(state.scale, -missing_bits), rules.min_scale)
    event = Event.LOWER if scale < state.scale else Event.HOLD
    return HeadroomState(replace(state.base, scale=scale, clean_steps=0, floor_overflows=0)), event


def _roomy(rules: HeadroomRules, state: HeadroomState, amax: float) -> tuple[HeadroomState, Event]:
    base, event = advance(rules.base, state.base, False)
    peak = max(state.peak, amax)
    if base.clean_steps > 0:
        return HeadroomState(base, peak), event
    return (HeadroomState(base), event) if 2.0 * peak < rules.limit else _vetoed(state, base)


def _vetoed(state: HeadroomState, base: State) -> tuple[HeadroomState, Event]:
    return HeadroomState(replace(base, scale=state.scale)), Event.HOLD


def _check_powers_of_2(rules: HeadroomRules) -> None:
    for name in ("init_scale", "backoff_factor", "min_scale", "max_scale"):
        value = getattr(rules, name)
        if not (FP32.tiny <= value <= FP32.max and math.frexp(value)[0] == 0.5):
            accepted = "a power of 2 from 2**-126 to 2**127"
            raise InvalidValueError(name, value, accepted, "Headroom moves the scale by whole bits.")


def _check_bits(rules: HeadroomRules) -> None:
    most = rules.format.max_exponent - 1
    if isinstance(rules.bits, bool) or not isinstance(rules.bits, int) or not 1 <= rules.bits <= most:
        accepted = f"a whole number from 1 to {most}, the doublings from 2 to the top of {rules.format.name}"
        raise InvalidValueError("bits", rules.bits, accepted, "3 leaves room for a step 8 times as large.")
