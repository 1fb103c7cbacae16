"""Replaying a recorded stream tells what a training would have lost."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from benchmarks import record_streams
from benchmarks.headroom import RULES, Follower, replay
from benchmarks.record_trainings import CountingScaler
from benchmarks.streams import BINS, DATA, LOWEST, STRIDE, Stream, streams
from mixprec import presets


def stream_of(gradients):
    """A stream of as many steps as there are tensors."""
    found = [record_streams._magnitudes([gradient]) for gradient in gradients]
    amax, counts = np.array([f[0] for f in found], dtype=np.float32), np.stack([f[1] for f in found[::STRIDE]])
    return Stream("made", amax, np.zeros_like(amax), counts, np.zeros_like(counts))


@pytest.mark.parametrize("log_scale", [0, 8, 16])
def test_losses_are_those_of_float16(log_scale):
    """What the counted exponents call zero and subnormal is what float16 makes of the scaled gradients."""
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(100_000, generator=generator) * torch.exp2(
        torch.randn(100_000, generator=generator) * 8 - 24
    )
    scaled = (gradient * 2.0**log_scale).half()
    tiny = torch.finfo(torch.float16).tiny

    zero, subnormal, all_of_them = stream_of([gradient]).lost(0, 2.0**log_scale)

    assert all_of_them == gradient.numel()
    assert zero == int((scaled == 0).sum())
    assert subnormal == pytest.approx(int(((scaled != 0) & (scaled.abs() < tiny)).sum()), abs=5)  # some round up to it


def test_a_step_is_lost_where_float16_overflows():
    """2**16 times 0.9998 does not fit, so the first step is lost; half of it does, so the second is not."""
    row = replay(stream_of([torch.tensor([0.9998])] * 3), "torch")

    assert (row["lost"], row["last_lost"], row["low"], row["high"]) == (1, 0, 15.0, 16.0)


def test_factor_is_a_scale_that_nobody_sees():
    """Multiplying the gradients loses what multiplying the scale would: 16 overflows before 2**0."""
    row = replay(stream_of([torch.tensor([0.9998])] * 30), "torch", factor=16)

    assert row["lost"] == 17
    assert row["low"] == -1.0


def test_headroom_looks_at_what_came():
    """One step at the edge brings the scale down by what is missing to the headroom of 3 bits."""
    row = replay(stream_of([torch.tensor([0.5])] * 2), "headroom, 3 bits")

    assert (row["lost"], row["low"]) == (0, 13.0)


def test_recorded_streams_are_whole_and_small():
    """Five streams, each with finite magnitudes for every step, in less than a megabyte."""
    recorded = streams()

    assert [stream.name for stream in recorded] == sorted(n for names in record_streams.RUNS.values() for n in names)
    for stream in recorded:
        assert np.isfinite(stream.weights_amax).all()
        assert len(stream.activations_amax) == stream.steps
        assert stream.weights_counts.shape == (math.ceil(stream.steps / STRIDE), BINS)
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 1_000_000


def test_a_recording_holds_the_trainings_gradients(tmp_path):
    """Recording an example for three steps gives three magnitudes, and the exponents of every element not zero."""
    record_streams.record("digits_convnet", 3, tmp_path)
    (stream,) = streams(tmp_path)

    top = math.floor(math.log2(stream.weights_amax[0]))
    assert stream.steps == 3
    assert stream.weights_counts[0].nonzero()[0].max() == top - LOWEST
    assert 0 < stream.weights_counts[0].sum() <= 1994  # the network's parameters
    assert stream.activations_amax[0] > 0


@pytest.mark.parametrize("name", RULES)
def test_the_training_scaler_moves_as_the_replay(name):
    """A scaler in training and the replay give the same scales for the same gradients, overflows included."""
    values = [1e-3, 0.2, 3.0, 1e-2, float("inf"), 1e-4, 0.5, 40.0] * 10
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([param], lr=0.0)
    scaler, follower = CountingScaler(RULES[name]), Follower.start(RULES[name])
    scaler.scale(torch.zeros(()))
    for value in values:
        scale = scaler.get_scale()
        assert scale == follower.state.scale
        param.grad = torch.full((1,), value * scale)
        scaler.step_together([optimizer])
        scaler.update()
        follower = follower.advance(math.isinf(value), value * scale)

    assert scaler.lost == 10


def test_torchs_row_moves_as_torch():
    """Under torch's rules the training scaler is torch's scaler."""
    rules = presets.get("torch").rules
    ours, theirs = CountingScaler(rules), torch.amp.GradScaler("cpu")
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([param], lr=0.0)
    for scaler in (ours, theirs):
        scaler.scale(torch.zeros(()))
    for step in range(40):
        found = step % 3 == 0
        for scaler in (ours, theirs):
            param.grad = torch.full((1,), math.inf if found else 1.0)
            scaler.step_together([optimizer]) if scaler is ours else scaler.step(optimizer)
            scaler.update()
        assert ours.get_scale() == theirs.get_scale()
