"""Headroom keeps the scale a power of 2 within its bounds, reacts monotonically, and its two forms are one."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._headroom import HeadroomRules, HeadroomState, advance_headroom, initial_headroom
from mixprec._headroom_tensors import HeadroomTensors, advance_headroom_
from mixprec._loss_scale import Event, State
from mixprec._scale_tensors import EVENTS, raise_at_floor
from mixprec.errors import InvalidValueError, LossScaleFloorError
from mixprec.formats import BF16, FP8_E5M2, FP16, FP32

POWERS = st.integers(-20, 30).map(lambda e: 2.0**e)
RULES = st.builds(
    lambda init, up, down, **rest: HeadroomRules(
        init_scale=init, max_scale=init * 2.0**up, min_scale=init * 2.0**-down, **rest
    ),
    POWERS,
    st.integers(0, 10),
    st.integers(0, 10),
    bits=st.integers(1, 14),
    growth_interval=st.integers(1, 4),
    backoff_factor=st.sampled_from([0.5, 0.25]),
    floor_patience=st.sampled_from([None, 2]),
    format=st.sampled_from([FP16, BF16, FP8_E5M2]),
)
AMAX = st.one_of(st.floats(0.0, width=32, allow_nan=False, allow_infinity=False), st.floats(0.0, 70000.0, width=32))
STEPS = st.lists(st.tuples(st.booleans(), AMAX), max_size=40)


def is_power_of_2(x: float) -> bool:
    return math.frexp(x)[0] == 0.5


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RULES, STEPS)
def test_scale_is_a_power_of_2_within_its_bounds(rules: HeadroomRules, steps: list[tuple[bool, float]]) -> None:
    """Whatever the rules, overflows and magnitudes; and each event means what it says."""
    state = initial_headroom(rules)
    for found_inf, amax in steps:
        try:
            after, event = advance_headroom(rules, state, found_inf, amax)
        except LossScaleFloorError:
            assert rules.floor_patience is not None
            assert state.scale == rules.min_scale
            return
        assert is_power_of_2(after.scale)
        assert rules.min_scale <= after.scale <= rules.max_scale
        assert (event is Event.GROW) == (after.scale > state.scale)
        assert (event is Event.BACK_OFF) == found_inf
        assert after.scale >= state.scale or event in (Event.BACK_OFF, Event.LOWER)
        assert after.scale <= 2.0 * state.scale
        state = after


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RULES, AMAX, AMAX, st.integers(0, 4), AMAX)
def test_reaction_is_monotone(rules: HeadroomRules, one: float, other: float, clean_steps: int, peak: float) -> None:
    """Of two steps from one state, the one with the larger gradients never ends at the larger scale."""
    state = HeadroomState(State(rules.init_scale, clean_steps), peak)
    low, high = sorted((one, other))
    after_low, _ = advance_headroom(rules, state, False, low)
    after_high, _ = advance_headroom(rules, state, False, high)
    assert after_low.scale >= after_high.scale


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RULES, AMAX)
def test_lowering_restores_the_headroom_and_no_more(rules: HeadroomRules, amax: float) -> None:
    """After LOWER the same gradients keep the headroom, and one bit less lowering would not have; but for the floor."""
    state = initial_headroom(rules)
    after, event = advance_headroom(rules, state, False, amax)
    if event is Event.LOWER:
        rescaled = amax * (after.scale / state.scale)
        assert 2.0 * rescaled >= rules.limit
        assert rescaled < rules.limit or after.scale == rules.min_scale
    else:
        assert amax < rules.limit or state.scale == rules.min_scale


@settings(max_examples=100, deadline=None, derandomize=True)
@given(RULES, st.floats(2.0**-20, 2.0**20, width=32))
def test_steady_gradients_reach_a_steady_scale(rules: HeadroomRules, amax: float) -> None:
    """Under gradients that stay the same the scale settles: they keep the headroom, and twice the scale would not; or
    it rests at a bound.
    """
    gradient = amax / rules.init_scale
    state = initial_headroom(rules)
    for _ in range(25 * rules.growth_interval):
        state, _ = advance_headroom(rules, state, False, gradient * state.scale)
    settled = state.scale
    for _ in range(5 * rules.growth_interval):
        state, _ = advance_headroom(rules, state, False, gradient * state.scale)
        assert state.scale == settled
    assert gradient * settled < rules.limit or settled == rules.min_scale
    assert 2.0 * gradient * settled >= rules.limit or settled == rules.max_scale


def test_a_peak_anywhere_in_the_interval_vetoes_growth() -> None:
    """Growth looks at the largest gradients of the whole interval, not only of its last step."""
    rules = HeadroomRules(growth_interval=3)
    assert rules.limit == 8192.0
    state = initial_headroom(rules)
    for amax in (1.0, 4096.0, 1.0):
        state, event = advance_headroom(rules, state, False, amax)
    assert (state, event) == (HeadroomState(State(2.0**16)), Event.HOLD)
    for amax in (1.0, 4095.0, 1.0):
        state, event = advance_headroom(rules, state, False, amax)
    assert (state, event) == (HeadroomState(State(2.0**17)), Event.GROW)


def test_overflow_falls_back_to_backing_off() -> None:
    """After an overflow amax says nothing; an amax that is not finite is an overflow by itself."""
    rules = HeadroomRules()
    for found_inf, amax in ((True, 1.0), (True, math.nan), (False, math.inf), (False, math.nan)):
        assert advance_headroom(rules, initial_headroom(rules), found_inf, amax) == (
            HeadroomState(State(2.0**15)),
            Event.BACK_OFF,
        )


def test_the_floor_is_the_classic_one() -> None:
    """Overflows at the floor raise at the patience; a crowded clean step there holds and restarts the count."""
    rules = HeadroomRules(init_scale=1.0, floor_patience=2)
    state, _ = advance_headroom(rules, initial_headroom(rules), True, 0.0)
    state, event = advance_headroom(rules, state, False, 60000.0)
    assert (state, event) == (HeadroomState(State(1.0)), Event.HOLD)
    state, _ = advance_headroom(rules, state, True, 0.0)
    with pytest.raises(LossScaleFloorError, match=r"^2 consecutive steps"):
        advance_headroom(rules, state, True, 0.0)


@pytest.mark.parametrize(
    ("name", "rejected", "accepted"),
    [
        ("init_scale", 65535.0, 65536.0),
        ("init_scale", 0.0, 1.0),
        ("backoff_factor", 0.3, 0.25),
        ("min_scale", 0.0, FP32.tiny),
        ("max_scale", math.inf, 2.0**127),
        ("bits", 0, 1),
        ("bits", 15, 14),
        ("bits", 2.0, 2),
        ("bits", True, 1),
        ("growth_interval", 0, 1),
        ("floor_patience", 0, None),
    ],
)
def test_field_rejects_what_is_outside_and_accepts_the_nearest(name: str, rejected: Any, accepted: Any) -> None:
    """The error names the field and its value."""
    with pytest.raises(InvalidValueError) as caught:
        HeadroomRules(**{name: rejected})
    assert str(caught.value).startswith(f"{name} is {rejected!r}; accepted is ")
    assert getattr(HeadroomRules(**{name: accepted}), name) == accepted


def assert_twins(rules: HeadroomRules, steps: list[tuple[bool, float]], device: str = "cpu") -> None:
    state, tensors = initial_headroom(rules), HeadroomTensors.start(rules, device)
    event = torch.zeros((), dtype=torch.int8, device=device)
    for found_inf, amax in steps:
        found, largest = torch.tensor(float(found_inf), device=device), torch.tensor(amax, device=device)
        advance_headroom_(rules, tensors, found, largest, event)
        try:
            state, expected = advance_headroom(rules, state, found_inf, amax)
        except LossScaleFloorError as error:
            with pytest.raises(LossScaleFloorError, match=f"^{error.overflows} "):
                raise_at_floor(rules.base, tensors.base)
            return
        assert (tensors.read(), EVENTS[int(event)]) == (state, expected)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(RULES, STEPS)
def test_tensors_move_as_the_state_does(rules: HeadroomRules, steps: list[tuple[bool, float]]) -> None:
    """The device's form gives the same state and event after every step, for any rules and magnitudes."""
    assert_twins(rules, steps)


def test_tensors_move_as_the_state_does_at_the_edges() -> None:
    """Infinities, NaN, zero, float32's largest number and its subnormals as magnitudes, at every number of bits."""
    edges = [0.0, math.inf, math.nan, FP32.max, FP32.smallest_subnormal, 8191.0, 8192.0, 65504.0]
    draw = random.Random(0)
    for bits in range(1, 15):
        rules = HeadroomRules(bits=bits, growth_interval=2, min_scale=2.0**-126, max_scale=2.0**127)
        near = [rules.limit, rules.limit / 2.0, FP16.round(rules.limit * 0.499), *edges]
        assert_twins(rules, [(draw.random() < 0.2, draw.choice(near)) for _ in range(40)])
        assert_twins(rules, [(False, rules.limit / 2.0)] * 6)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_is_never_waited_for_and_gives_the_same() -> None:
    """On a GPU: equal to the specification, and a step runs with PyTorch's synchronisation guard set to raise."""
    draw, rules = random.Random(1), HeadroomRules(growth_interval=2)
    assert_twins(rules, [(draw.random() < 0.2, draw.uniform(0.0, 70000.0)) for _ in range(100)], "cuda")
    tensors, number = HeadroomTensors.start(rules, "cuda"), torch.ones((), device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        advance_headroom_(rules, tensors, number, number)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_more_headroom_means_a_lower_limit() -> None:
    """One bit of headroom more halves what the gradients may reach."""
    rules = HeadroomRules(bits=1)
    assert [replace(rules, bits=bits).limit for bits in (1, 2, 3)] == [32768.0, 16384.0, 8192.0]
