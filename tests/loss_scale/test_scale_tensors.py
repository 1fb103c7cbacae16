"""The tensors on a device move exactly as the specification does, for any rules, and never wait for the device."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mixprec import presets
from mixprec._loss_scale import (
    Arithmetic,
    AtMax,
    Growth,
    Refill,
    Rules,
    State,
    advance,
    bounded,
    initial,
    on_device,
)
from mixprec._scale_tensors import EVENTS, ScaleTensors, _moves_as_torch_does, advance_, bound_, raise_at_floor
from mixprec.errors import LossScaleFloorError
from mixprec.formats import FP32

ALL = [pytest.param(preset.rules, id=preset.name) for preset in presets.all_presets()]


def random_rules(draw: random.Random) -> Rules:
    return Rules(
        init_scale=draw.choice([2.0**16, 1000.1, 1e5, 3.7]),
        growth_factor=draw.choice([2.0, 1.5, 4.0, 1.1, 3.3]),
        backoff_factor=draw.choice([0.5, 0.25, 0.3, 0.9]),
        growth_interval=draw.choice([1, 2, 3, 5]),
        min_scale=draw.choice([0.0, 1.0, 0.1, 2.0**-14]),
        max_scale=draw.choice([2.0**24, FP32.max, float("inf"), 1e5, 3e38]),
        hysteresis=draw.choice([1, 1, 1, 2, 3]),
        growth=draw.choice(list(Growth)),
        refill=draw.choice(list(Refill)),
        at_max=draw.choice(list(AtMax)),
        floor_patience=draw.choice([None, 1, 3, 10]),
        arithmetic=draw.choice(list(Arithmetic)),
    )


def assert_twins(rules: Rules, stream: list[bool], device: str = "cpu") -> None:
    """Runs both over `stream`: state, event and error at the floor have to be equal after every step."""
    specified = on_device(rules)
    state, tensors = initial(specified), ScaleTensors.start(rules, device)
    event = torch.zeros((), dtype=torch.int8, device=device)
    for step, found_inf in enumerate(stream):
        advance_(rules, tensors, torch.tensor(2.0 * found_inf, device=device), event)
        try:
            state, expected = advance(specified, state, found_inf)
        except LossScaleFloorError as error:
            with pytest.raises(LossScaleFloorError, match=f"^{re.escape(str(error))}$"):
                raise_at_floor(rules, tensors)
            return
        raise_at_floor(rules, tensors)
        assert (tensors.read(), EVENTS[int(event)]) == (state, expected), step


@pytest.mark.parametrize("rules", ALL)
@pytest.mark.parametrize("interval", [None, 1, 3])
def test_twin_of_every_preset(rules: Rules, interval: int | None) -> None:
    """Every preset, with its own interval and with short ones, over rare and frequent overflows."""
    draw = random.Random(interval or 0)
    rules = rules if interval is None else replace(rules, growth_interval=interval)
    for chance in (0.02, 0.3, 0.8):
        assert_twins(rules, [draw.random() < chance for _ in range(150)])


@pytest.mark.parametrize("seed", range(8))
def test_twin_of_any_rules(seed: int) -> None:
    """Any combination of fields, over random streams."""
    draw = random.Random(seed)
    for _ in range(25):
        rules, chance = random_rules(draw), draw.choice([0.0, 0.05, 0.3, 0.7, 1.0])
        assert_twins(rules, [draw.random() < chance for _ in range(80)])


def test_random_rules_take_both_ways() -> None:
    """The rules drawn above reach torch's kernel and the general form, each often."""
    draw = random.Random(0)
    ways = Counter(_moves_as_torch_does(on_device(random_rules(draw))) for _ in range(500))
    assert min(ways[True], ways[False]) > 40


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_twin_on_cuda() -> None:
    """The same on a GPU, over any rules and every preset."""
    draw = random.Random(1)
    for rules in [preset.rules for preset in presets.all_presets()] + [random_rules(draw) for _ in range(60)]:
        assert_twins(rules, [draw.random() < 0.4 for _ in range(40)], "cuda")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rules", ALL)
def test_cuda_is_never_waited_for(rules: Rules) -> None:
    """With PyTorch's synchronisation guard set to raise, a step under any preset raises nothing; reading does."""
    tensors, found_inf = ScaleTensors.start(rules, "cuda"), torch.ones((), device="cuda")
    event = torch.zeros((), dtype=torch.int8, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        advance_(rules, tensors, found_inf, event)
        bound_(rules, tensors)
        with pytest.raises(RuntimeError, match="synchroniz"):
            tensors.read()
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Recorder(TorchDispatchMode):
    """Counts the ops that reach a backend; views and dtype changes that copy nothing are none."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops[func.name()] += 1
        return func(*args, **(kwargs or {}))


def recorded(rules: Rules, event: torch.Tensor | None = None) -> Counter[str]:
    tensors, found_inf = ScaleTensors.start(rules, "cpu"), torch.ones(())
    with Recorder() as recorder:
        advance_(rules, tensors, found_inf, event)
    return recorder.ops


@pytest.mark.parametrize("rules", ALL)
def test_no_step_reads_a_tensor(rules: Rules) -> None:
    """No preset's step reads a number back to the host; `raise_at_floor` does, so the probe can see it."""
    assert recorded(rules, torch.zeros((), dtype=torch.int8))["aten::_local_scalar_dense"] == 0
    with Recorder() as recorder:
        ScaleTensors.start(rules, "cpu").scale.item()
    assert recorder.ops["aten::_local_scalar_dense"] == 1


def test_cost_is_what_the_docstring_says() -> None:
    """1 kernel for torch's rules, +1 for bounds, +1 for AT_LEAST, +4 for a patience, +5 for the event."""
    torchs = presets.TORCH.rules
    assert recorded(torchs) == {"aten::_amp_update_scale_": 1}
    assert recorded(replace(torchs, min_scale=1.0)).total() == 2
    assert recorded(replace(torchs, growth=Growth.AT_LEAST)).total() == 2
    assert recorded(replace(torchs, floor_patience=9)).total() == 5
    assert recorded(Rules()).total() == 7
    assert recorded(torchs, torch.zeros((), dtype=torch.int8)).total() == 6
    assert 20 <= recorded(presets.DEEPSPEED_ZERO.rules).total() <= 40
    assert 20 <= recorded(presets.PADDLE.rules).total() <= 40


def test_tensors_are_changed_where_they_lie() -> None:
    """A scaler that shares `scale` and `clean_steps` as its `_scale` and `_growth_tracker` sees every step."""
    for rules in (Rules(growth_interval=2), presets.MEGATRON.rules):
        tensors = ScaleTensors.start(rules, "cpu")
        places = [
            t.data_ptr() for t in (tensors.scale, tensors.clean_steps, tensors.allowance, tensors.floor_overflows)
        ]
        advance_(rules, tensors, torch.zeros(()))
        assert int(tensors.clean_steps) == 1
        assert places == [
            t.data_ptr() for t in (tensors.scale, tensors.clean_steps, tensors.allowance, tensors.floor_overflows)
        ]


def test_state_goes_to_the_device_and_back() -> None:
    """`start` and `read` are inverse, to the last bit of the scale and beyond 2**24 in the counts."""
    state = State(FP32.round(0.1), 2**31 - 1, 3, 2**25 + 1)
    assert ScaleTensors.start(Rules(), "cpu", state).read() == state


def test_bound_brings_tensors_inside_as_bounded_does_a_state() -> None:
    """After a load or a change of rules the device's form and the specification's agree."""
    rules = Rules(min_scale=0.1, hysteresis=2)
    for state in (State(2.0**40, 5, 7), State(2.0**-30), State(3.0, 5, 1)):
        tensors = ScaleTensors.start(rules, "cpu", state)
        bound_(rules, tensors)
        assert tensors.read() == bounded(rules, state)


def test_interval_lowered_below_the_count_still_grows() -> None:
    """Under mixprec's rules, unlike torch's, a lowered interval grows at the next clean step."""
    tensors = ScaleTensors.start(Rules(), "cpu", State(16.0, clean_steps=50))
    advance_(Rules(growth_interval=10), tensors, torch.zeros(()))
    assert tensors.read() == State(32.0)


def test_floor_count_goes_on_until_the_host_looks() -> None:
    """The device cannot raise: it counts on, and the error that comes late says how many there were."""
    rules = Rules(init_scale=1.0, floor_patience=3)
    tensors = ScaleTensors.start(rules, "cpu")
    for _ in range(7):
        advance_(rules, tensors, torch.ones(()))
    with pytest.raises(LossScaleFloorError) as caught:
        raise_at_floor(rules, tensors)
    assert caught.value.overflows == 7
    advance_(rules, tensors, torch.zeros(()))
    raise_at_floor(rules, tensors)


@pytest.mark.parametrize("rules", [Rules(growth_interval=2), presets.DEEPSPEED_ZERO.rules])
def test_a_step_compiles_without_a_graph_break(rules: Rules) -> None:
    """`torch.compile(fullgraph=True)` takes a step as it is."""

    def step(tensors: ScaleTensors, found_inf: torch.Tensor) -> None:
        advance_(rules, tensors, found_inf)

    eager, compiled = ScaleTensors.start(rules, "cpu"), ScaleTensors.start(rules, "cpu")
    fullgraph = torch.compile(step, fullgraph=True, backend="eager")
    for found_inf in (0.0, 0.0, 1.0, 1.0, 0.0):
        step(eager, torch.tensor(found_inf))
        fullgraph(compiled, torch.tensor(found_inf))
        assert compiled.read() == eager.read()
