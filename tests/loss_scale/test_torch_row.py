"""The `torch` row is PyTorch's scaler: its kernel over thousands of streams, and whole scalers with real optimizers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from mixprec import presets
from mixprec._loss_scale import Rules, State, advance, initial

TORCH = presets.TORCH.rules
NO_INF, INF = torch.tensor(0.0), torch.tensor(1.0)


def kernel_scales(rules: Rules, stream: list[bool]) -> list[tuple[float, int]]:
    scale = torch.full((), rules.init_scale, dtype=torch.float32)
    tracker = torch.zeros((), dtype=torch.int32)
    seen = []
    for found_inf in stream:
        torch._amp_update_scale_(
            scale,
            tracker,
            INF if found_inf else NO_INF,
            rules.growth_factor,
            rules.backoff_factor,
            rules.growth_interval,
        )
        seen.append((scale.item(), int(tracker)))
    return seen


def specified_scales(rules: Rules, stream: list[bool]) -> list[tuple[float, int]]:
    state, seen = initial(rules), []
    for found_inf in stream:
        state, _ = advance(rules, state, found_inf)
        seen.append((state.scale, state.clean_steps))
    return seen


def random_rules(draw: random.Random) -> Rules:
    return replace(
        TORCH,
        init_scale=draw.choice([2.0**16, 2.0**-140, 2.0**120, 1000.1, draw.uniform(1e-3, 1e6)]),
        growth_factor=draw.choice([2.0, 4.0, 1.001, draw.uniform(1.01, 10.0)]),
        backoff_factor=draw.choice([0.5, 0.25, 0.999, draw.uniform(0.01, 0.99)]),
        growth_interval=draw.choice([1, 2, 3, 7, 20]),
    )


@pytest.mark.parametrize("seed", range(20))
def test_row_equals_the_kernel(seed: int) -> None:
    """Scale and tracker equal `torch._amp_update_scale_`'s bit for bit: 2000 streams of 40 steps, any parameters."""
    draw = random.Random(seed)
    for _ in range(100):
        rules, chance = random_rules(draw), draw.choice([0.0, 0.02, 0.3, 0.7, 1.0])
        stream = [draw.random() < chance for _ in range(40)]
        assert specified_scales(rules, stream) == kernel_scales(rules, stream)


def test_row_equals_the_kernel_over_its_whole_range() -> None:
    """Without overflows the row climbs to 2**127 and holds, with overflows only it falls to 0, like the kernel."""
    rules = replace(TORCH, growth_interval=1)
    up, down = [False] * 120, [True] * 200
    assert specified_scales(rules, up + down) == kernel_scales(rules, up + down)
    assert specified_scales(rules, up)[-1][0] == 2.0**127
    assert specified_scales(TORCH, down)[165][0] == 0.0
    assert specified_scales(TORCH, down)[164][0] > 0.0


def test_row_does_not_grow_after_its_interval_was_lowered() -> None:
    """PyTorch compares with ==: an interval set below the tracker waits for an overflow, and so does the row."""
    tracker = torch.tensor(5, dtype=torch.int32)
    scale = torch.tensor(8.0)
    rules, state = replace(TORCH, growth_interval=3), State(8.0, clean_steps=5)
    for _ in range(50):
        torch._amp_update_scale_(scale, tracker, NO_INF, 2.0, 0.5, 3)
        state, _ = advance(rules, state, False)
        assert (state.scale, state.clean_steps) == (scale.item(), int(tracker))
    assert state.scale == 8.0


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("optimizers", [1, 2])
def test_row_equals_a_whole_scaler(fused: bool, optimizers: int) -> None:
    """`torch.amp.GradScaler("cpu")`, driven by real optimizers through all its calls, gives the row's scales."""
    for seed in range(8):
        draw = random.Random(seed)
        rules = random_rules(draw)
        rules = replace(
            rules, init_scale=max(1.0, min(rules.init_scale, 1e6)), growth_interval=min(3, rules.growth_interval)
        )
        scaler = torch.amp.GradScaler(
            "cpu", rules.init_scale, rules.growth_factor, rules.backoff_factor, rules.growth_interval
        )
        weights = [torch.ones(3, requires_grad=True) for _ in range(optimizers)]
        steppers = [torch.optim.Adam([w], fused=fused) for w in weights]
        state = initial(rules)
        for _ in range(25):
            found_inf = draw.random() < 0.4
            for weight, optimizer in zip(weights, steppers, strict=True):
                optimizer.zero_grad()
                scaler.scale((weight * 2.0**-100).sum()).backward()
            if found_inf:
                draw.choice(weights).grad[1] = draw.choice([float("inf"), float("nan")])
            for optimizer in steppers:
                scaler.step(optimizer)
            scaler.update()
            state, _ = advance(rules, state, found_inf)
            assert (state.scale, state.clean_steps) == (scaler.get_scale(), scaler._get_growth_tracker())


def test_row_has_the_defaults_of_the_scaler() -> None:
    """The row's numbers are the defaults of `torch.amp.GradScaler`."""
    state = torch.amp.GradScaler("cpu").state_dict()
    assert TORCH.init_scale == state["scale"]
    assert TORCH.growth_factor == state["growth_factor"]
    assert TORCH.backoff_factor == state["backoff_factor"]
    assert TORCH.growth_interval == state["growth_interval"]
