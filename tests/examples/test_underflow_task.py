"""The demo's task measures what it claims: who loses gradients, who pays how many bytes, who ends where."""

from __future__ import annotations

import math

import pytest

EPOCHS = 26  # 52 steps: two probes


@pytest.fixture(scope="module")
def results(example):
    """One short run per mode."""
    task = example("underflow_task")
    return {mode: task.train(mode, seed=0, epochs=EPOCHS) for mode in task.MODES}


def test_only_fp16_without_scale_flushes_gradients(results):
    """A third or more of the nonzero gradient is zero without a loss scale, and next to none with it or in bf16."""
    assert results["fp16-unscaled"].flushed > 0.3
    assert results["half"].flushed > 0.3
    for mode in ("fp32", "fp16-mixed", "bf16-mixed", "bf16-pure"):
        assert results[mode].flushed < 0.01, mode


def test_half_dies_of_adams_epsilon(results):
    """In fp16 the epsilon 1e-8 is zero, so the first step divides zero by zero; the run says when it gave up."""
    half = results["half"]
    assert math.isfinite(half.losses[0])
    assert math.isnan(half.losses[1])
    assert half.ended_early == 21
    assert math.isnan(half.test_loss)
    assert all(results[mode].ended_early is None for mode in results if mode != "half")


def test_bytes_are_what_dtypes_and_copies_make_them(results):
    """16-bit weights halve weights, gradients and optimizer state; autocast halves what matrix products save."""
    full, mixed, pure = (results[mode].bytes for mode in ("fp32", "bf16-mixed", "bf16-pure"))
    parameters = 64 * 48 + 48 * 48 + 48 * 24 + 24 * 48 + 48 * 48 + 48 * 64 + 48 + 48 + 24 + 48 + 48 + 64
    assert full.weights == full.gradients == 4 * parameters
    assert full.optimizer == 8 * parameters
    assert (pure.weights, pure.gradients, pure.optimizer) == tuple(
        n // 2 for n in (full.weights, full.gradients, full.optimizer)
    )
    assert (mixed.weights, mixed.gradients, mixed.optimizer) == (full.weights, full.gradients, full.optimizer)
    assert (full.weight_copies, pure.weight_copies) == (0, 0)
    assert 0 < mixed.weight_copies < 2 * parameters
    assert mixed.activations < full.activations
    assert results["half"].bytes.weights == 2 * parameters


def test_every_step_is_accounted_for(results):
    """Curves have one entry per step, and every step was applied or skipped."""
    for mode, result in results.items():
        steps = result.ended_early or 2 * EPOCHS
        assert len(result.losses) == len(result.scales) == result.applied + result.skipped == steps
        assert (result.scales[-1] > 1.0) == (mode == "fp16-mixed")


def test_progress_is_told_after_each_step(example):
    """on_step gets step, steps in all, loss and scale."""
    calls = []
    result = example("underflow_task").train("bf16-mixed", epochs=2, on_step=lambda *call: calls.append(call))
    assert [call[:2] for call in calls] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [call[2] for call in calls] == result.losses


def test_an_unknown_mode_is_refused(example):
    """The error lists the modes."""
    with pytest.raises(SystemExit, match="mode is 'fp8'; one of fp32, fp16-unscaled, half"):
        example("underflow_task").train("fp8")


@pytest.mark.slow
def test_the_whole_run_separates_them(example):
    """After all epochs fp16 without scale reads fewer than half of the digits, with mixprec more than nine in ten."""
    task = example("underflow_task")
    naive, mixed = (task.train(mode, seed=0) for mode in ("fp16-unscaled", "fp16-mixed"))
    assert naive.accuracy < 0.5
    assert mixed.accuracy > 0.85
    assert mixed.test_loss < 0.5 * naive.test_loss
