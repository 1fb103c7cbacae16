"""What each field of `Rules` does, beyond what the peers' rows prove, and what holds for all rules."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._loss_scale import (
    Arithmetic,
    AtMax,
    Event,
    Growth,
    Refill,
    Rules,
    State,
    advance,
    bounded,
    floor_error,
    initial,
    on_device,
)
from mixprec.errors import InvalidValueError, LossScaleFloorError
from mixprec.formats import FP32

RULES = st.builds(
    Rules,
    init_scale=st.floats(1.0, 2.0**20),
    growth_factor=st.floats(1.001, 8.0),
    backoff_factor=st.floats(0.01, 0.999),
    growth_interval=st.integers(1, 6),
    min_scale=st.sampled_from([0.0, 0.1, 1.0]),
    max_scale=st.sampled_from([2.0**20, 3e6, FP32.max, math.inf]),
    floor_patience=st.sampled_from([None, 1, 3, 100]),
    hysteresis=st.integers(1, 4),
    growth=st.sampled_from(list(Growth)),
    refill=st.sampled_from(list(Refill)),
    at_max=st.sampled_from(list(AtMax)),
    arithmetic=st.sampled_from(list(Arithmetic)),
)
STREAMS = st.lists(st.booleans(), max_size=60)


def run(rules: Rules, stream: str) -> tuple[State, list[str]]:
    """`stream` in words of one letter: c is a clean step, o an overflow."""
    state, events = initial(rules), []
    for letter in stream:
        state, event = advance(rules, state, letter == "o")
        events.append(event.value)
    return state, events


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RULES, STREAMS)
def test_scale_stays_within_its_bounds_and_moves_only_as_the_event_says(rules: Rules, stream: list[bool]) -> None:
    """Whatever the rules and the overflows: the scale is within the bounds, up only by GROW, down only by BACK_OFF."""
    state = initial(rules)
    low, high = FP32.round(rules.min_scale), FP32.round(rules.max_scale)
    if rules.arithmetic is Arithmetic.FLOAT64:
        low, high = rules.min_scale, rules.max_scale
    for found_inf in stream:
        try:
            after, event = advance(rules, state, found_inf)
        except LossScaleFloorError:
            assert rules.floor_patience is not None
            assert state.scale == low
            return
        assert low <= after.scale <= high
        assert (event is Event.GROW) == (after.scale > state.scale)
        assert after.scale >= state.scale or event is Event.BACK_OFF
        assert (event in (Event.BACK_OFF, Event.TOLERATE)) == found_inf
        assert 0 <= after.allowance < rules.hysteresis
        state = after


@settings(max_examples=100, deadline=None, derandomize=True)
@given(RULES, STREAMS)
def test_float32_scales_are_float32_numbers(rules: Rules, stream: list[bool]) -> None:
    """On a device, and only there, every scale is one that float32 holds."""
    rules = replace(on_device(rules), floor_patience=None)
    state = initial(rules)
    for found_inf in stream:
        assert FP32.round(state.scale) == state.scale
        state, _ = advance(rules, state, found_inf)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(RULES, STREAMS)
def test_on_device_changes_nothing_that_float32_can_hold(rules: Rules, stream: list[bool]) -> None:
    """With power-of-2 factors float64 rules and their device form agree to the last bit below float32's maximum."""
    rules = replace(
        rules, init_scale=2.0**10, growth_factor=2.0, backoff_factor=0.5, min_scale=1.0, arithmetic=Arithmetic.FLOAT64
    )
    here, there = initial(rules), initial(on_device(rules))
    for found_inf in stream:
        assert here == there
        try:
            here, event = advance(rules, here, found_inf)
        except LossScaleFloorError as error:
            with pytest.raises(LossScaleFloorError, match=str(error.overflows)):
                advance(on_device(rules), there, found_inf)
            return
        there, event_there = advance(on_device(rules), there, found_inf)
        assert event == event_there


def test_on_device_never_reaches_infinity_where_float64_rules_had_no_ceiling() -> None:
    """A Python float outgrows float32; a device's scale is held below instead of becoming an infinity for ever."""
    rules = Rules(init_scale=2.0**126, max_scale=math.inf, growth_interval=1, arithmetic=Arithmetic.FLOAT64)
    assert run(rules, "ccc")[0].scale == 2.0**129
    assert run(on_device(rules), "ccc") == (State(2.0**127), ["grow", "hold", "hold"])


def test_defaults_are_mixprecs_own() -> None:
    """2**16, doubled after 2000 clean steps, halved at an overflow, within [1, 2**24], patience 100."""
    rules = Rules()
    state, events = run(rules, "c" * 2000)
    assert (state.scale, events[-2:]) == (2.0**17, ["hold", "grow"])
    assert run(rules, "o")[0].scale == 2.0**15
    assert run(replace(rules, growth_interval=1), "c" * 20)[0].scale == 2.0**24
    assert run(rules, "o" * 16)[0].scale == 1.0


def test_interval_lowered_below_the_count_still_grows() -> None:
    """Growth.AT_LEAST grows at the next clean step when the interval was lowered; EXACTLY never does."""
    lowered = Rules(growth_interval=3)
    state = State(16.0, clean_steps=7)
    assert advance(lowered, state, False) == (State(32.0), Event.GROW)
    assert advance(replace(lowered, growth=Growth.EXACTLY), state, False)[1] is Event.HOLD


def test_every_leaves_the_first_clean_step_out_and_goes_on_counting() -> None:
    """Growth.EVERY with 2 grows after 3 clean steps, then after every 2; an overflow starts again."""
    rules = Rules(growth=Growth.EVERY, growth_interval=2)
    assert run(rules, "ccccccc")[1] == ["hold", "hold", "grow", "hold", "grow", "hold", "grow"]
    assert run(rules, "cocccc")[1] == ["hold", "back_off", "hold", "hold", "grow", "hold"]


@pytest.mark.parametrize(
    ("refill", "events"),
    [
        (Refill.AT_GROWTH, "tolerate hold back_off back_off hold back_off hold grow tolerate"),
        (Refill.AT_CLEAN_STEP, "tolerate hold tolerate back_off hold tolerate hold grow tolerate"),
        (Refill.AT_CLEAN_STEP_OR_BACK_OFF, "tolerate hold tolerate back_off hold tolerate hold grow tolerate"),
    ],
)
def test_allowance_refills_where_the_rule_says(refill: Refill, events: str) -> None:
    """Isolated overflows add up until growth, or until any clean step."""
    assert run(Rules(hysteresis=2, refill=refill, growth_interval=2), "ocoococco")[1] == events.split()


def test_allowance_once_used_up_is_gone_unless_a_back_off_refills_it() -> None:
    """In a run of overflows AT_CLEAN_STEP backs off at each, AT_CLEAN_STEP_OR_BACK_OFF at every second."""
    every = Rules(hysteresis=2, refill=Refill.AT_CLEAN_STEP)
    assert run(every, "oooo")[1] == ["tolerate", "back_off", "back_off", "back_off"]
    second = replace(every, refill=Refill.AT_CLEAN_STEP_OR_BACK_OFF)
    assert run(second, "oooo")[1] == ["tolerate", "back_off", "tolerate", "back_off"]


def test_tolerated_overflow_restarts_the_clean_count() -> None:
    """An overflow that costs no scale costs the clean steps before it."""
    assert run(Rules(hysteresis=3, growth_interval=2), "cocc")[1] == ["hold", "tolerate", "hold", "grow"]


def test_growth_beyond_the_maximum_clamps_or_holds() -> None:
    """From 64 × 2 with the maximum 100: CLAMP gives 100 and then holds, HOLD stays at 64. Counting restarts in both."""
    rules = Rules(init_scale=64.0, max_scale=100.0, growth_interval=1)
    assert run(rules, "cc") == (State(100.0), ["grow", "hold"])
    assert run(replace(rules, at_max=AtMax.HOLD), "cc") == (State(64.0), ["hold", "hold"])


def test_floor_error_comes_at_the_patience_and_says_what_to_do() -> None:
    """The overflow that arrives at the floor is not counted; the `floor_patience`-th one that finds it there raises."""
    rules = Rules(init_scale=2.0, floor_patience=3)
    state, _ = run(rules, "ooo")
    assert state == State(1.0, floor_overflows=2)
    with pytest.raises(LossScaleFloorError) as caught:
        advance(rules, state, True)
    assert (caught.value.scale, caught.value.overflows) == (1.0, 3)
    assert str(caught.value) == (
        "3 consecutive steps had non-finite gradients with the loss scale at its floor of 1. A lower scale cannot "
        "help: the infinities or NaNs come from the forward pass, the loss or the backward pass itself. Run one step "
        "in float32: if its loss or gradients are not finite either, look at the data, the learning rate and the loss "
        "(log or division of 0); if they are, use bfloat16, or keep the overflowing module in float32. To wait longer, "
        "raise floor_patience; to skip for ever, set it to None."
    )


def test_one_clean_step_restarts_the_patience() -> None:
    """Only consecutive overflows at the floor end the run."""
    rules = Rules(init_scale=1.0, floor_patience=2)
    assert run(rules, "ocococo")[0] == State(1.0, floor_overflows=1)


def test_no_patience_skips_for_ever_and_counts_nothing() -> None:
    """floor_patience=None never raises, and leaves the count at 0."""
    assert run(Rules(init_scale=1.0, floor_patience=None), "o" * 500)[0] == State(1.0)


def test_floor_error_for_a_late_reader_is_the_one_that_advance_raises() -> None:
    """One error below the patience: none; at it: the same text as `advance` gives."""
    rules = Rules(init_scale=1.0, floor_patience=2)
    assert floor_error(rules, 1.0, 1) is None
    with pytest.raises(LossScaleFloorError) as caught:
        run(rules, "oo")
    assert str(floor_error(rules, 1.0, 2)) == str(caught.value)


def test_bounded_brings_a_foreign_state_inside() -> None:
    """A scale outside the bounds and an allowance above the rules' own are brought to the nearest allowed value."""
    rules = Rules(hysteresis=2)
    assert bounded(rules, State(2.0**40, 5, 7)) == State(2.0**24, 5, 1)
    assert bounded(rules, State(2.0**-3)) == State(1.0)
    assert bounded(rules, State(3.0, 5, 1)) == State(3.0, 5, 1)


BIG = 2**31
NEAREST: list[tuple[str, Any, Any]] = [
    ("init_scale", 0.5, 1.0),
    ("init_scale", 2.0**25, 2.0**24),
    ("init_scale", math.nan, 2.0),
    ("init_scale", "65536", 65536),
    ("max_scale", True, 2.0**16),
    ("growth_factor", 1.0, math.nextafter(1.0, 2.0)),
    ("growth_factor", math.inf, 1e300),
    ("growth_factor", math.nan, 2.0),
    ("backoff_factor", 1.0, math.nextafter(1.0, 0.0)),
    ("backoff_factor", 0.0, 5e-324),
    ("backoff_factor", -0.5, 0.5),
    ("growth_interval", 0, 1),
    ("growth_interval", 2.0, 2),
    ("growth_interval", True, 1),
    ("growth_interval", BIG, BIG - 1),
    ("min_scale", -1.0, 0.0),
    ("min_scale", 2.0**17, 2.0**16),
    ("min_scale", math.nan, 0.0),
    ("max_scale", 2.0**15, 2.0**16),
    ("max_scale", math.nan, math.inf),
    ("floor_patience", 0, 1),
    ("floor_patience", 0, None),
    ("hysteresis", 0, 1),
    ("growth", "exactly", Growth.EXACTLY),
    ("refill", "at_growth", Refill.AT_GROWTH),
    ("at_max", True, AtMax.HOLD),
    ("arithmetic", "float64", Arithmetic.FLOAT64),
]


@pytest.mark.parametrize(("name", "rejected", "accepted"), NEAREST)
def test_field_rejects_what_is_outside_and_accepts_the_nearest(name: str, rejected: Any, accepted: Any) -> None:
    """The error carries value and name of the field at fault (a bound may blame what it excludes)."""
    with pytest.raises(InvalidValueError) as caught:
        Rules(**{name: rejected})
    blamed = caught.value.name
    assert blamed == name or (name in ("min_scale", "max_scale") and blamed == "init_scale")
    assert f"{blamed} is {caught.value.value!r}; accepted is " in str(caught.value)
    assert getattr(Rules(**{name: accepted}), name) == accepted


def test_every_field_has_a_rejected_value_here() -> None:
    """No field of Rules goes unvalidated."""
    assert {name for name, _, _ in NEAREST} == {field.name for field in fields(Rules)}


def test_rejection_text_says_what_to_do() -> None:
    """A rejected factor's text names the value, what is accepted and the way to what was probably meant."""
    with pytest.raises(InvalidValueError) as caught:
        Rules(growth_factor=1.0)
    assert str(caught.value) == (
        "growth_factor is 1.0; accepted is a finite number above 1. "
        "For a scale that never grows, set max_scale to init_scale."
    )
    assert run(Rules(max_scale=2.0**16, growth_interval=1), "ccc")[0].scale == 2.0**16


def test_float32_rules_reject_a_scale_that_float32_cannot_hold() -> None:
    """1e39 overflows float32 and 1e-46 underflows it; float64 rules take both."""
    for scale in (1e39, 1e-46):
        with pytest.raises(InvalidValueError, match="a positive number that float32 holds"):
            Rules(init_scale=scale, min_scale=0.0, max_scale=math.inf)
        wide = Rules(init_scale=scale, min_scale=0.0, max_scale=math.inf, arithmetic=Arithmetic.FLOAT64)
        assert initial(wide).scale == scale


def test_rules_and_state_are_frozen() -> None:
    """Values do not change under anyone's feet."""
    with pytest.raises(FrozenInstanceError):
        Rules().init_scale = 1.0  # type: ignore[misc]  # the assignment is what must fail
    with pytest.raises(FrozenInstanceError):
        State(1.0).scale = 2.0  # type: ignore[misc]  # the assignment is what must fail
