"""Questions in sizes that take no time."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from benchmarks import (
    accumulation,
    autocast_cost,
    gpt_step,
    headroom,
    lint_speed,
    monitor_cost,
    optimizer_phase,
    small_gpt,
)
from benchmarks.harness import Bench
from benchmarks.streams import streams


@pytest.fixture
def bench():
    """A bench that stops as soon as it may."""
    return Bench(share=0.0)


@pytest.fixture
def tiny(monkeypatch):
    """Every question in a tiny size."""
    size = optimizer_phase.Size("large", "3 tensors", ((4, 4), (4,), (8, 2)))
    for name in ("LARGE", "MANY", "MLP"):
        monkeypatch.setattr(optimizer_phase, name, size)
    monkeypatch.setattr(autocast_cost, "CALLS", 2)
    model = functools.partial(small_gpt.SmallGPT, width=8, blocks=1, heads=2, context=4)
    monkeypatch.setattr(small_gpt, "SmallGPT", model)
    monkeypatch.setattr(small_gpt, "batch", functools.partial(small_gpt.batch, context=4))
    monkeypatch.setattr(accumulation, "MICRO_BATCHES", 2)
    monkeypatch.setattr(gpt_step, "LOSS_AT", 2)
    monkeypatch.setattr(lint_speed, "QUICK_FILES", 3)
    monkeypatch.setattr(monitor_cost, "SIZES", (monitor_cost.Size("tiny", "tiny", 8, 1, 2, 4, 2, turn=2),))
    recorded = [replace(stream, weights_amax=stream.weights_amax[:100]) for stream in streams()]
    monkeypatch.setattr(headroom, "streams", lambda: recorded)
    return size
