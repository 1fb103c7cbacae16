"""A conversion that lists no loss changes nothing; one that lists some says what; damage is an error."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec import presets
from mixprec._loss_scale import Growth, Refill, Rules, State, advance
from mixprec._scale_layouts import LAYOUTS, Loss, ScaleCheckpoint, detect, from_layout, to_layout
from mixprec.errors import CheckpointError, LossScaleFloorError, MixprecError, UnknownNameError
from mixprec.formats import FP32

PRESET = {
    "mixprec": presets.MIXPREC,
    "torch": presets.TORCH,
    "apex": presets.APEX,
    "deepspeed-zero": presets.DEEPSPEED_ZERO,
    "deepspeed-fp16": presets.DEEPSPEED_FP16,
    "megatron": presets.MEGATRON,
}
SAVED: dict[str, dict[str, Any]] = {
    "mixprec": to_layout("mixprec", ScaleCheckpoint(Rules(), State(2.0**12, 5))).mapping,
    "torch": {
        "scale": 4096.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 5,
    },
    "apex": {"loss_scaler0": {"loss_scale": 4096.0, "unskipped": 5}},
    "deepspeed-zero": {
        "cur_scale": 4096.0,
        "cur_iter": 90,
        "last_overflow_iter": 84,
        "scale_factor": 2.0,
        "scale_window": 1000,
        "min_scale": 1,
        "delayed_shift": 2,
        "cur_hysteresis": 1,
        "consecutive_hysteresis": False,
        "raise_error_at_min_scale": True,
        "dynamic": True,
        "dtype": torch.half,
    },
    "deepspeed-fp16": {
        "dynamic_loss_scale": True,
        "cur_scale": 4096.0,
        "cur_iter": 90,
        "last_overflow_iter": 84,
        "scale_factor": 2.0,
        "scale_window": 1000,
        "optimizer_state_dict": {},
    },
    "megatron": {"scale": torch.tensor([4096.0]), "growth_tracker": 5, "hysteresis_tracker": 2},
}

FACTORS = {"growth_factor": [2.0, 4.0], "growth_interval": [1, 2, 5]}
CARRIED: dict[str, dict[str, list[Any]]] = {
    "mixprec": {**FACTORS, "hysteresis": [1, 2], "min_scale": [0.0, 1.0], "floor_patience": [None, 2]},
    "torch": {**FACTORS, "backoff_factor": [0.5, 0.25]},
    "apex": {},
    "deepspeed-zero": {
        "growth_interval": [1, 2, 5],
        "min_scale": [0.25, 1.0],
        "hysteresis": [1, 2, 3],
        "refill": [Refill.AT_GROWTH, Refill.AT_CLEAN_STEP],
        "floor_patience": [None, 1],
    },
    "deepspeed-fp16": {"growth_interval": [1, 2, 5]},
    "megatron": {},
}
"""Rules that a layout carries, in values that its system accepts."""


@st.composite
def checkpoints_of(draw: st.DrawFn, layout: str) -> ScaleCheckpoint:
    """Under the system's rules, with what its layout carries drawn freely, any growth kind that it could come from."""
    carried = {name: draw(st.sampled_from(values)) for name, values in CARRIED[layout].items()}
    own = PRESET[layout].rules.growth
    growth = draw(
        st.sampled_from([own, *({Growth.AT_LEAST, Growth.EXACTLY} - {own} if own is not Growth.EVERY else ())])
    )
    rules = replace(PRESET[layout].rules, **carried, growth=growth)
    most = rules.growth_interval + 3 if growth is not Growth.EXACTLY else rules.growth_interval - 1
    state = State(
        2.0 ** draw(st.integers(0, 20)), draw(st.integers(0, most)), draw(st.integers(0, rules.hysteresis - 1))
    )
    return ScaleCheckpoint(rules, state, draw(st.sampled_from([None, 0, 100])))


def scales(rules: Rules, state: State, stream: list[bool]) -> list[float]:
    seen = []
    for found_inf in stream:
        try:
            state, _ = advance(rules, state, found_inf)
        except LossScaleFloorError:
            return [*seen, math.nan.hex()]  # type: ignore[list-item]  # a mark that compares equal to itself
        seen.append(state.scale)
    return seen


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data(), st.lists(st.booleans(), max_size=25))
def test_what_a_layout_carries_goes_through_it_without_loss(
    layout: str, data: st.DataObject, stream: list[bool]
) -> None:
    """A system's own checkpoints list no loss, and what is written, read back and run on gives the same scales."""
    checkpoint = data.draw(checkpoints_of(layout))
    conversion = to_layout(layout, checkpoint)
    assert conversion.losses == ()
    back = from_layout(layout, conversion.mapping)
    assert scales(back.rules, back.state, stream) == scales(checkpoint.rules, checkpoint.state, stream)


@pytest.mark.parametrize("theirs", [name for name in LAYOUTS if name != "mixprec"])
@pytest.mark.parametrize("ours", LAYOUTS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data(), st.lists(st.booleans(), max_size=25))
def test_every_difference_between_systems_is_a_listed_loss(
    ours: str, theirs: str, data: st.DataObject, stream: list[bool]
) -> None:
    """From any system to any other: with the listed losses undone, no scale differs."""
    checkpoint = data.draw(checkpoints_of(ours))
    conversion = to_layout(theirs, checkpoint)
    lost = {loss.what: loss.here for loss in conversion.losses}
    assert lost.keys() <= {*_RULE_NAMES, *_STATE_NAMES, "steps until growth"}
    if "max_scale" in lost:
        lost["at_max"] = checkpoint.rules.at_max
    if "growth" in lost:
        lost["clean_steps"] = checkpoint.state.clean_steps
    lost_rules = {name: value for name, value in lost.items() if name in _RULE_NAMES}
    lost_rules["init_scale"] = checkpoint.rules.init_scale  # where a run started, which no layout carries
    lost_state = {name: value for name, value in lost.items() if name in _STATE_NAMES}
    read = from_layout(theirs, conversion.mapping, replace(PRESET[theirs].rules, **lost_rules))
    rules, state = replace(read.rules, **lost_rules), replace(read.state, **lost_state)
    assert scales(rules, state, stream) == scales(checkpoint.rules, checkpoint.state, stream)


_RULE_NAMES = frozenset(Rules.__dataclass_fields__)
_STATE_NAMES = frozenset(State.__dataclass_fields__)


COUNTING = ["mixprec", "torch", "apex", "megatron"]
LEAVING_OUT = ["deepspeed-zero", "deepspeed-fp16"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(a, b) for a in COUNTING for b in LEAVING_OUT] + [(a, b) for a in LEAVING_OUT for b in ["torch"]],
)
def test_the_next_growth_keeps_its_step(ours: str, theirs: str) -> None:
    """Between systems that count clean steps differently, the step of the next growth on a clean run stays the same."""
    for clean_steps in range(1, 7):
        carried = {} if ours in ("apex", "megatron") else {"growth_interval": 5}
        rules = replace(PRESET[ours].rules, **carried)
        checkpoint = ScaleCheckpoint(rules, State(16.0, clean_steps))
        if rules.growth is Growth.EXACTLY and clean_steps >= rules.growth_interval:
            continue
        back = from_layout(theirs, to_layout(theirs, checkpoint).mapping)
        run = [False] * (rules.growth_interval + 1)
        there, here = scales(back.rules, back.state, run), scales(rules, checkpoint.state, run)
        assert there.index(32.0) == here.index(32.0)


def test_one_step_is_lost_directly_after_a_deepspeed_overflow() -> None:
    """DeepSpeed leaves the next clean step out; a count from 0 cannot say so, and the loss does."""
    checkpoint = ScaleCheckpoint(presets.DEEPSPEED_FP16.rules, State(16.0, 0))
    assert Loss("steps until growth", 1001, 1000) in to_layout("torch", checkpoint).losses


def test_a_lowered_interval_still_grows_after_the_conversion() -> None:
    """mixprec grows at the next clean step when the interval was lowered below the count; so do the others then."""
    checkpoint = ScaleCheckpoint(Rules(growth_interval=3), State(16.0, 7))
    for layout in ("torch", "deepspeed-zero", "deepspeed-fp16"):
        back = from_layout(layout, to_layout(layout, checkpoint).mapping)
        assert scales(back.rules, back.state, [False]) == [32.0]
    stuck = ScaleCheckpoint(replace(Rules(growth_interval=3), growth=Growth.EXACTLY), State(16.0, 7))
    assert "growth" in [loss.what for loss in to_layout("deepspeed-fp16", stuck).losses]


def test_own_layout_goes_through_json_unchanged() -> None:
    """Everything, also infinity, None and what was assumed."""
    for preset in presets.all_presets():
        state = State(preset.rules.init_scale, 3, preset.rules.hysteresis - 1)
        checkpoint = ScaleCheckpoint(preset.rules, state, 17, ("min_scale",))
        mapping = json.loads(json.dumps(to_layout("mixprec", checkpoint).mapping))
        assert from_layout("mixprec", mapping) == checkpoint


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_is_recognised_and_read(layout: str) -> None:
    """Each system's mapping, with what else its checkpoint holds, is told from the others and gives its state."""
    assert detect(SAVED[layout]) == layout
    checkpoint = from_layout(layout, SAVED[layout])
    assert (checkpoint.state.scale, checkpoint.state.clean_steps) == (4096.0, 5)


def test_what_a_layout_does_not_carry_is_said_and_can_be_given() -> None:
    """Megatron saves no rules: its preset's are assumed, or the caller's."""
    checkpoint = from_layout("megatron", SAVED["megatron"])
    assert checkpoint.rules == presets.MEGATRON.rules
    assert "hysteresis" in checkpoint.assumed
    known = replace(presets.MEGATRON.rules, hysteresis=4)
    four = {**SAVED["megatron"], "hysteresis_tracker": 4}
    assert from_layout("megatron", four, known).state.allowance == 3
    with pytest.raises(CheckpointError, match=r"tolerates 3 more overflows, but the rules grant 1 \(hysteresis=2\)"):
        from_layout("megatron", four)


def test_torch_scaler_goes_on_as_specified() -> None:
    """A real scaler's state dict read here goes on as the scaler does, and one written here loads into a scaler."""
    draw = random.Random(0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1000.0, growth_interval=3)
    other = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    other.scale(torch.ones(()))

    def update(which: torch.amp.GradScaler, found_inf: bool) -> None:
        torch._amp_update_scale_(
            which._scale,
            which._growth_tracker,
            torch.tensor(float(found_inf)),
            which.get_growth_factor(),
            which.get_backoff_factor(),
            which.get_growth_interval(),
        )

    for _ in range(50):
        update(scaler, draw.random() < 0.3)
        checkpoint = from_layout("torch", scaler.state_dict())
        conversion = to_layout("torch", checkpoint)
        assert conversion == type(conversion)(scaler.state_dict(), ())
        other.load_state_dict(conversion.mapping)
        found_inf = draw.random() < 0.3
        update(other, found_inf)
        state, _ = advance(checkpoint.rules, checkpoint.state, found_inf)
        assert from_layout("torch", other.state_dict()).state == state


def test_losses_name_both_values_and_the_way_to_set_them() -> None:
    """mixprec's rules in Megatron: the interval has a flag there, the ceiling has nothing."""
    conversion = to_layout("megatron", ScaleCheckpoint(Rules(), State(8.0, 3, floor_overflows=2)))
    assert conversion.mapping == {"scale": 8.0, "growth_tracker": 3, "hysteresis_tracker": 1}
    assert conversion.losses == (
        Loss("growth_interval", 2000, 1000, "--loss-scale-window"),
        Loss("max_scale", 2.0**24, math.inf),
        Loss("floor_patience", 100, None),
        Loss("hysteresis", 1, 2, "--hysteresis"),
        Loss("floor_overflows", 2, 0),
    )


def test_scale_that_float32_rounds_is_a_loss_and_one_that_it_cannot_hold_an_error() -> None:
    """Apex and DeepSpeed hold the scale as a Python float; PyTorch does not."""
    wide = replace(presets.DEEPSPEED_FP16.rules, growth=Growth.EXACTLY)
    rounded = to_layout("torch", ScaleCheckpoint(wide, State(0.1)))
    assert rounded.mapping["scale"] == FP32.round(0.1)
    assert Loss("scale", 0.1, FP32.round(0.1)) in rounded.losses
    with pytest.raises(CheckpointError, match="accepted is what float32 can hold"):
        to_layout("torch", ScaleCheckpoint(wide, State(2.0**128)))


def test_deepspeed_iterations_are_kept_where_known() -> None:
    """`cur_iter` survives from one DeepSpeed optimizer to the other; unknown, it is as small as the count allows."""
    zero = from_layout("deepspeed-zero", SAVED["deepspeed-zero"])
    assert (zero.steps, zero.state.allowance) == (90, 0)
    fp16 = to_layout("deepspeed-fp16", zero).mapping
    assert (fp16["cur_iter"], fp16["last_overflow_iter"]) == (90, 84)
    unknown = to_layout("deepspeed-fp16", replace(zero, steps=None)).mapping
    assert (unknown["cur_iter"], unknown["last_overflow_iter"]) == (5, -1)


def without(layout: str, key: str) -> dict[str, Any]:
    return {k: v for k, v in SAVED[layout].items() if k != key}


DAMAGED = [
    ("torch", {"scale": 0.0}, "scale", "from which no system recovers"),
    ("torch", {"scale": math.inf}, "scale", "from which no system recovers"),
    ("torch", {"scale": math.nan}, "scale", "from which no system recovers"),
    ("torch", {"scale": "4096"}, "scale", "accepted is a number"),
    ("torch", {"_growth_tracker": -1}, "_growth_tracker", "accepted is a whole number, 0 or more"),
    ("torch", {"_growth_tracker": 1.5}, "_growth_tracker", "accepted is a whole number"),
    ("torch", {"growth_factor": 1.0}, "growth_factor", "out of range"),
    ("torch", {"growth_interval": 0}, "growth_interval", "out of range"),
    ("deepspeed-zero", {"cur_iter": 84}, "last_overflow_iter", "from -1 to cur_iter - 1, which is 83"),
    ("deepspeed-zero", {"scale_factor": 0.0}, "scale_factor", "accepted is a number above 1"),
    ("deepspeed-zero", {"consecutive_hysteresis": 1}, "consecutive_hysteresis", "accepted is True or False"),
    ("deepspeed-fp16", {"dynamic_loss_scale": False}, "dynamic_loss_scale", "static one"),
    ("megatron", {"growth_tracker": None}, "growth_tracker", "accepted is a whole number"),
    ("apex", {"loss_scaler1": {}}, "loss_scaler1", "has 2 loss scales; accepted is one"),
    ("apex", {"loss_scaler0": 4096.0}, "loss_scaler0", "accepted is a mapping"),
    ("mixprec", {"mixprec_loss_scale": 2}, "mixprec_loss_scale", "A newer mixprec wrote it"),
    ("mixprec", {"mixprec_loss_scale": 0}, "mixprec_loss_scale", "accepted is a version up to 1"),
    ("mixprec", {"state": None}, "state", "accepted is a mapping"),
]


@pytest.mark.parametrize(("layout", "damage", "key", "text"), DAMAGED)
def test_damage_is_an_error_that_names_the_entry(layout: str, damage: dict[str, Any], key: str, text: str) -> None:
    """The mapping without the damage is read (above); with it, the error carries the key and says what is accepted."""
    with pytest.raises(CheckpointError) as caught:
        from_layout(layout, {**SAVED[layout], **damage})
    assert caught.value.key == key
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("layout", "key"),
    [
        (layout, key)
        for layout in LAYOUTS
        for key in SAVED[layout]
        if key not in ("dynamic", "dtype", "optimizer_state_dict")
    ],
)
def test_a_missing_entry_is_named(layout: str, key: str) -> None:
    """Every entry that a layout reads is missed when it is not there."""
    with pytest.raises(CheckpointError) as caught:
        from_layout(layout, without(layout, key))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("damage", "key"),
    [({"growth": "sometimes"}, "growth"), ({"hysteresis": 0}, "hysteresis"), ({"window": 3}, "window")],
)
def test_damaged_rules_in_the_own_layout_are_named(damage: dict[str, Any], key: str) -> None:
    """An unknown choice, a number out of range and an unknown rule."""
    mapping = {**SAVED["mixprec"], "rules": {**SAVED["mixprec"]["rules"], **damage}}
    with pytest.raises(CheckpointError) as caught:
        from_layout("mixprec", mapping)
    assert caught.value.key == key


def test_what_is_no_layout_is_said_with_the_known_ones() -> None:
    """An empty mapping is what a disabled scaler saves; any other gets the list of known keys."""
    with pytest.raises(CheckpointError, match="as a disabled scaler saves it"):
        detect({})
    with pytest.raises(CheckpointError, match=r"The keys 'step' are no known layout's\. Known are: torch \(scale, "):
        detect({"step": 1})


def test_an_unknown_layout_gets_suggestions() -> None:
    """In both directions, before anything is read."""
    for call in (
        lambda: from_layout("megatorn", {}),
        lambda: to_layout("megatorn", from_layout("torch", SAVED["torch"])),
    ):
        with pytest.raises(UnknownNameError) as caught:
            call()
        assert caught.value.suggestions == ("megatron",)
    assert issubclass(UnknownNameError, MixprecError)
