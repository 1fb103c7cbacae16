"""Every example trains in every mode, and fp16-mixed ends where fp32 does."""

from __future__ import annotations

import ast
import statistics
from math import isfinite, sqrt
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("digits_convnet", "digits_autoencoder", "char_transformer", "gan_two_optimizers", "accumulate_and_clip")
SLOW = {"digits_autoencoder", "char_transformer"}
CASES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]

SEEDS = (0, 1, 2)
SPREAD_SEEDS = (0, 1, 2, 3, 4)


@pytest.fixture
def final(result):
    """The final losses of an example over SEEDS in a mode."""
    return lambda name, mode, seeds=SEEDS: [result(name, mode, seed)["loss"] for seed in seeds]


def margin(losses):
    """Two standard errors of the difference between two means of three runs, by the spread of these fp32 runs."""
    return 2 * statistics.stdev(losses) * sqrt(2 / len(SEEDS))


@pytest.mark.parametrize("name", CASES)
def test_fp16_mixed_ends_within_run_to_run_noise_of_fp32(name, final):
    """Over three seeds the means differ by less than two standard errors that fp32's own spread over five predicts."""
    noise = margin(final(name, "fp32", SPREAD_SEEDS))
    difference = statistics.mean(final(name, "fp16-mixed")) - statistics.mean(final(name, "fp32"))
    assert abs(difference) <= noise


@pytest.mark.slow
def test_fp16_without_a_loss_scale_visibly_does_not(final):
    """On the autoencoder its gradients become zero: every seed ends five margins or more above every fp32 run."""
    fp32 = final("digits_autoencoder", "fp32", SPREAD_SEEDS)
    assert min(final("digits_autoencoder", "fp16-unscaled")) > max(fp32) + 5 * margin(fp32)


@pytest.mark.parametrize("name", CASES)
def test_bf16_mixed_runs_and_ends_in_the_range_of_fp32(name, final):
    """One seed in bf16 ends no further from the fp32 runs than their own range and margin."""
    fp32 = final(name, "fp32", SPREAD_SEEDS)
    (loss,) = final(name, "bf16-mixed", (0,))
    assert min(fp32) - margin(fp32) <= loss <= max(fp32) + margin(fp32)


@pytest.mark.parametrize("mode", ["fp16-master", "bf16-master"])
@pytest.mark.parametrize("name", ["digits_convnet", "gan_two_optimizers", "accumulate_and_clip"])
def test_masters_train_the_examples_too(name, mode, final):
    """One seed with 16-bit weights and float32 masters ends in the range of the fp32 runs."""
    fp32 = final(name, "fp32", SPREAD_SEEDS)
    (loss,) = final(name, mode, (0,))
    assert min(fp32) - margin(fp32) <= loss <= max(fp32) + margin(fp32)


def test_the_classifiers_classify(result):
    """The margin is around something that works: accuracy above 85 %, far from the 10 % of chance."""
    for name in ("digits_convnet", "accumulate_and_clip"):
        assert result(name, "fp16-mixed", 0)["accuracy"] > 0.85
    assert 0.0 < result("accumulate_and_clip", "fp16-mixed", 0)["clipped"] < 1.0


def test_a_seed_decides_the_run(example):
    """The same seed gives the same number to the last bit, another seed another; steps are as asked for."""
    main = example("accumulate_and_clip").main
    once, again, other = (main(["--mode", "fp16-mixed", "--steps", "12", "--seed", seed]) for seed in "334")
    assert once == again
    assert once != other
    assert all(isfinite(value) for value in once.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_enough_to_copy(name):
    """40 to 90 lines, one main, nothing imported but torch, mixprec, the data and the standard library."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert 40 <= len(source.splitlines()) <= 90
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    allowed = {"__future__", "argparse", "itertools", "mixprec", "pydoc_data", "sklearn", "torch"}
    assert imported <= allowed
