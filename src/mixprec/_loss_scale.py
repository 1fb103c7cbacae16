"""The loss scale is a number that grows after clean steps and backs off after overflows; `Rules` say exactly how.

This is the specification: state is a value, `advance` is a function from one state to the next, and every faster form
(the tensors of `mixprec.GradScaler`) is tested equal to it. The rules express what PyTorch, Apex, DeepSpeed, Megatron,
Keras, Paddle and Flax do, number for number; `mixprec.presets` holds one row for each.

    >>> rules = Rules(growth_interval=2)
    >>> state = initial(rules)
    >>> for found_inf in (False, False, True):
    ...     state, event = advance(rules, state, found_inf)
    ...     print(event.value, state.scale)
    hold 65536.0
    grow 131072.0
    back_off 65536.0
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from mixprec.errors import InvalidValueError, LossScaleFloorError
from mixprec.formats import FP32

__all__ = [
    "Arithmetic",
    "AtMax",
    "Event",
    "Growth",
    "Refill",
    "Rules",
    "State",
    "advance",
    "bounded",
    "floor_error",
    "initial",
    "on_device",
]


class Event(str, enum.Enum):
    """What a step did to the loss scale."""

    GROW = "grow"
    """Enough clean steps: the scale went up."""

    BACK_OFF = "back_off"
    """An overflow, and the allowance was used up: the scale went down, or stayed where the floor holds it."""

    TOLERATE = "tolerate"
    """An overflow that the allowance paid for: the scale stayed."""

    HOLD = "hold"
    """A clean step: the scale stayed, because it was too early to grow or the maximum was reached."""

    LOWER = "lower"
    """A clean step that left too little headroom: the scale went down ahead of an overflow (headroom rules only)."""


class Growth(str, enum.Enum):
    """When a number of consecutive clean steps makes the scale grow, and where counting goes on after that."""

    AT_LEAST = "at_least"
    """At `growth_interval` clean steps or more; then from 0. An interval that is lowered still grows."""

    EXACTLY = "exactly"
    """At exactly `growth_interval`; then from 0. An interval lowered below the count waits for an overflow."""

    EVERY = "every"
    """At every multiple of `growth_interval` after a first clean step that is not counted; growth restarts nothing."""


class Refill(str, enum.Enum):
    """What restores the allowance of overflows that are tolerated before the scale backs off."""

    AT_GROWTH = "at_growth"
    """A completed growth interval: isolated overflows add up."""

    AT_CLEAN_STEP = "at_clean_step"
    """Any clean step: only consecutive overflows add up. Once used up, every further one backs off."""

    AT_CLEAN_STEP_OR_BACK_OFF = "at_clean_step_or_back_off"
    """Any clean step or back-off: the scale goes down once per `hysteresis` consecutive overflows."""


class AtMax(str, enum.Enum):
    """What a growth beyond `max_scale` does."""

    CLAMP = "clamp"
    """The scale becomes `max_scale`."""

    HOLD = "hold"
    """The scale stays where it is."""


class Arithmetic(str, enum.Enum):
    """In which format the scale is held; products are formed in float64 and rounded once."""

    FLOAT32 = "float32"
    """A float32 tensor: the scale can overflow to inf and underflow to 0."""

    FLOAT64 = "float64"
    """A Python float."""


@dataclass(frozen=True)
class Rules:
    """How a loss scale moves. The defaults are mixprec's own.

    - The scale starts at `init_scale`, is multiplied by `growth_factor` after `growth_interval` consecutive clean
      steps (`growth`: exactly when) and by `backoff_factor` after an overflow.
    - It stays within `min_scale` and `max_scale` (`at_max`: how); 0 and infinity mean no bound.
    - `hysteresis` is the overflow that backs off: 1 is the first, 2 tolerates one before it (`refill`: until when).
    - At `floor_patience` consecutive overflows that find the scale already at `min_scale`, `advance` raises; None
      never does. Tolerated overflows are not counted there.
    - `arithmetic` is the format of the scale. Factors that float32 cannot hold are used in float64; a system that
      keeps them in float32 is matched by rounding them first.

    Raises: InvalidValueError for a field outside its range.
    """

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    min_scale: float = 1.0
    max_scale: float = 2.0**24
    floor_patience: int | None = 100
    hysteresis: int = 1
    growth: Growth = Growth.AT_LEAST
    refill: Refill = Refill.AT_GROWTH
    at_max: AtMax = AtMax.CLAMP
    arithmetic: Arithmetic = Arithmetic.FLOAT32

    def __post_init__(self) -> None:
        _check_choices(self)
        _check_numbers(self)
        _check_bounds(self)
        _check_factors(self)
        _check_counts(self)


@dataclass(frozen=True)
class State:
    """Where a loss scale stands.

    `clean_steps` counts consecutive clean steps as `Rules.growth` does, `allowance` is the number of overflows still
    tolerated before the scale backs off, `floor_overflows` the number of consecutive overflows that found the scale
    at its minimum (always 0 where `Rules.floor_patience` is None). `advance` expects a scale within the rules' bounds:
    `bounded` brings a state of other rules there.
    """

    scale: float
    clean_steps: int = 0
    allowance: int = 0
    floor_overflows: int = 0


def initial(rules: Rules) -> State:
    """The state before the first step."""
    return State(scale=_held(rules, rules.init_scale), allowance=rules.hysteresis - 1)


def bounded(rules: Rules, state: State) -> State:
    """`state` within what `rules` allow: the scale between the bounds, the allowance not above what they grant."""
    scale = min(max(_held(rules, state.scale), _floor(rules)), _held(rules, rules.max_scale))
    return replace(state, scale=scale, allowance=min(state.allowance, rules.hysteresis - 1))


def advance(rules: Rules, state: State, found_inf: bool) -> tuple[State, Event]:
    """The state after a step whose gradients were finite (`found_inf` false) or not, and what happened to the scale.

    Raises: LossScaleFloorError at `rules.floor_patience` consecutive overflows with the scale at its minimum.
    """
    return _overflowed(rules, state) if found_inf else _clean(rules, state)


def _overflowed(rules: Rules, state: State) -> tuple[State, Event]:
    state = replace(state, clean_steps=0)
    return _tolerated(state) if state.allowance > 0 else _backed_off(rules, state)


def _tolerated(state: State) -> tuple[State, Event]:
    return replace(state, allowance=state.allowance - 1), Event.TOLERATE


def _backed_off(rules: Rules, state: State) -> tuple[State, Event]:
    if rules.floor_patience is not None and state.scale <= _floor(rules):
        state = _at_floor(rules, state)
    if rules.refill is Refill.AT_CLEAN_STEP_OR_BACK_OFF:
        state = _refilled(rules, state)
    lower = _held(rules, state.scale * rules.backoff_factor)
    return replace(state, scale=max(lower, _floor(rules))), Event.BACK_OFF


def _at_floor(rules: Rules, state: State) -> State:
    state = replace(state, floor_overflows=state.floor_overflows + 1)
    error = floor_error(rules, state.scale, state.floor_overflows)
    if error is not None:
        raise error
    return state


def _clean(rules: Rules, state: State) -> tuple[State, Event]:
    state = replace(state, clean_steps=state.clean_steps + 1, floor_overflows=0)
    if rules.refill is not Refill.AT_GROWTH:
        state = _refilled(rules, state)
    return _interval_complete(rules, state) if _grows(rules, state.clean_steps) else (state, Event.HOLD)


def _grows(rules: Rules, clean_steps: int) -> bool:
    if rules.growth is Growth.EVERY:
        return clean_steps > 1 and (clean_steps - 1) % rules.growth_interval == 0
    if rules.growth is Growth.EXACTLY:
        return clean_steps == rules.growth_interval
    return clean_steps >= rules.growth_interval


def _interval_complete(rules: Rules, state: State) -> tuple[State, Event]:
    if rules.growth is not Growth.EVERY:
        state = replace(state, clean_steps=0)
    scale = _grown(rules, state.scale)
    event = Event.GROW if scale > state.scale else Event.HOLD
    return replace(_refilled(rules, state), scale=scale), event


def _grown(rules: Rules, scale: float) -> float:
    higher, ceiling = _held(rules, scale * rules.growth_factor), _held(rules, rules.max_scale)
    if higher <= ceiling:
        return higher
    return ceiling if rules.at_max is AtMax.CLAMP else scale


def _refilled(rules: Rules, state: State) -> State:
    return replace(state, allowance=rules.hysteresis - 1)


def _floor(rules: Rules) -> float:
    return _held(rules, rules.min_scale)


def _held(rules: Rules, scale: float) -> float:
    """`scale` in the format that holds it."""
    return FP32.round(scale) if rules.arithmetic is Arithmetic.FLOAT32 else scale


def floor_error(rules: Rules, scale: float, floor_overflows: int) -> LossScaleFloorError | None:
    """The error that `floor_overflows` consecutive overflows at the minimum amount to under `rules`, if any.

    For a reader who learns the count late; `advance` raises it by itself.
    """
    if rules.floor_patience is None or floor_overflows < rules.floor_patience:
        return None
    return LossScaleFloorError(scale, floor_overflows, _FLOOR_ADVICE)


_FLOOR_ADVICE = (
    "A lower scale cannot help: the infinities or NaNs come from the forward pass, the loss or the backward pass "
    "itself. Run one step in float32: if its loss or gradients are not finite either, look at the data, the learning "
    "rate and the loss (log or division of 0); if they are, use bfloat16, or keep the overflowing module in float32. "
    "To wait longer, raise floor_patience; to skip for ever, set it to None."
)


def on_device(rules: Rules) -> Rules:
    """`rules` with the scale in a float32 tensor: the same up to float32's largest number, and held below it."""
    if rules.arithmetic is Arithmetic.FLOAT32:
        return rules
    at_max = AtMax.HOLD if rules.max_scale > FP32.max else rules.at_max
    return replace(rules, arithmetic=Arithmetic.FLOAT32, max_scale=min(rules.max_scale, FP32.max), at_max=at_max)


def _check_choices(rules: Rules) -> None:
    for name, kind in (("growth", Growth), ("refill", Refill), ("at_max", AtMax), ("arithmetic", Arithmetic)):
        value = getattr(rules, name)
        _check(isinstance(value, kind), name, value, "one of " + ", ".join(f"{kind.__name__}.{c.name}" for c in kind))


def _check_numbers(rules: Rules) -> None:
    for name in ("init_scale", "growth_factor", "backoff_factor", "min_scale", "max_scale"):
        value = getattr(rules, name)
        _check(isinstance(value, (int, float)) and not isinstance(value, bool), name, value, "a number")


def _check_bounds(rules: Rules) -> None:
    _check(0.0 <= rules.min_scale < math.inf, "min_scale", rules.min_scale, "a finite number, 0 or more (0: no floor)")
    _check(
        rules.max_scale >= rules.min_scale and rules.max_scale > 0.0,
        "max_scale",
        rules.max_scale,
        f"a number above 0 and not below min_scale={rules.min_scale!r} (infinity: no ceiling)",
    )
    _check(
        0.0 < _held(rules, rules.init_scale) < math.inf and rules.min_scale <= rules.init_scale <= rules.max_scale,
        "init_scale",
        rules.init_scale,
        f"a positive number that {rules.arithmetic.value} holds, from min_scale={rules.min_scale!r} to "
        f"max_scale={rules.max_scale!r}",
        "Move init_scale, or the bound that excludes it.",
    )


def _check_factors(rules: Rules) -> None:
    _check(
        1.0 < rules.growth_factor < math.inf,
        "growth_factor",
        rules.growth_factor,
        "a finite number above 1",
        "For a scale that never grows, set max_scale to init_scale.",
    )
    _check(
        0.0 < rules.backoff_factor < 1.0,
        "backoff_factor",
        rules.backoff_factor,
        "a number between 0 and 1, both excluded",
        "For a scale that never falls, set min_scale to init_scale.",
    )


def _check_counts(rules: Rules) -> None:
    _check(_is_count(rules.growth_interval), "growth_interval", rules.growth_interval, _COUNT)
    _check(_is_count(rules.hysteresis), "hysteresis", rules.hysteresis, _COUNT, "1 backs off at every overflow.")
    _check(
        rules.floor_patience is None or _is_count(rules.floor_patience),
        "floor_patience",
        rules.floor_patience,
        f"{_COUNT}, or None",
        "None skips steps for ever.",
    )


_COUNT = "a whole number from 1 to 2147483647"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**31 - 1


def _check(accepted: bool, name: str, value: object, what: str, advice: str = "") -> None:
    if not accepted:
        raise InvalidValueError(name, value, what, advice)
