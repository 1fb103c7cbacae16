"""Whole trainings that know nothing of a monitor: sound ones are silent from end to end, a broken one is not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from mixprec import GradScaler, Precision
from mixprec.monitor import read_run
from mixprec.monitor._attach import attach
from mixprec.monitor.incident import load_incidents

EXAMPLES = Path(__file__).parents[2] / "examples"


def watched(name, folder, arguments, precision=None):
    """What one rank recorded while an example's `main(arguments)` ran with `precision` in place of `Precision`."""
    spec = importlib.util.spec_from_file_location(f"watched_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if precision is not None:
        module.Precision = precision
    finish = attach({"folder": str(folder), "level": "standard", "incidents": True})
    try:
        module.main(arguments)
    finally:
        finish()
    (rank,) = read_run(folder).ranks
    return rank


def unscaled(mode, *optimizers, **options):
    """fp16-mixed with a loss scale that stays 1, as without a scaler."""
    scaler = GradScaler("cpu", init_scale=1.0, min_scale=1.0, max_scale=1.0)
    return Precision("fp16-mixed", *optimizers, scaler=scaler, **options)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("digits_convnet", "fp16-mixed"),
        ("digits_autoencoder", "fp16-mixed"),
        ("gan_two_optimizers", "fp16-mixed"),
        ("accumulate_and_clip", "bf16-mixed"),
        ("accumulate_and_clip", "bf16-master"),
    ],
)
def test_a_sound_training_raises_no_alert(name, mode, tmp_path):
    """Every step is recorded with loss and norm, models and optimizers are found, and nothing is said."""
    rank = watched(name, tmp_path, ["--mode", mode, "--steps", "200"])

    assert rank.findings == ()
    assert load_incidents(tmp_path) == []
    assert len(rank.steps) > 50
    assert all(record.loss is not None and record.lr is not None for record in rank.steps)
    assert sum(record.grad_norm is not None for record in rank.steps) >= 0.9 * len(rank.steps)
    assert sum(record.looked and bool(record.modules) for record in rank.steps) >= 8
    assert rank.ended


def test_underflow_is_found_in_a_whole_training(tmp_path):
    """The autoencoder without a loss scale loses its gradients: MP060 is said, early, once, and a step is kept."""
    rank = watched("digits_autoencoder", tmp_path, ["--mode", "fp16-mixed", "--steps", "200"], unscaled)

    assert [finding.code for _, finding in rank.findings] == ["MP060"]
    assert rank.findings[0][0] < len(rank.steps) / 2
    [incident] = load_incidents(tmp_path)
    assert (incident.kind, incident.scale) == ("underflow", 1.0)
    assert rank.findings[0][0] < incident.step < rank.findings[0][0] + 20
