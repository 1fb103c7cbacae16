"""The `flax` row against Flax's own `DynamicScale`, on CPU.

Passes with flax 0.12.8 and jax 0.10.2, in an environment of their own that holds no torch:

    pip install flax pytest pytest-timeout
    PYTHONPATH=src python -m pytest tests/peers/test_flax.py
"""

from __future__ import annotations

import random
import warnings
from dataclasses import replace

import pytest

from mixprec import presets
from mixprec._loss_scale import Rules, advance, initial

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what a peer warns about at import is not ours to judge
    jax = pytest.importorskip("jax", reason="JAX and Flax are installed by hand")
    dynamic_scale = pytest.importorskip("flax.training.dynamic_scale", reason="JAX and Flax are installed by hand")
    import jax.numpy as jnp

pytestmark = pytest.mark.peers

FLAX = presets.FLAX.rules

CLEAN = jax.jit(lambda scaler: scaler.value_and_grad(lambda w: w * 1.0)(jnp.float32(2.0**-130)))
OVERFLOW = jax.jit(lambda scaler: scaler.value_and_grad(lambda w: w * jnp.inf)(jnp.float32(1.0)))


def assert_equal_scales(rules: Rules, stream: list[bool]) -> None:
    scaler = dynamic_scale.DynamicScale(
        growth_factor=rules.growth_factor,
        backoff_factor=rules.backoff_factor,
        growth_interval=rules.growth_interval - 1,
        fin_steps=jnp.int32(0),
        scale=jnp.float32(rules.init_scale),
        minimum_scale=rules.min_scale,
    )
    state = initial(rules)
    for step, found_inf in enumerate(stream):
        scaler, finite, _, _ = (OVERFLOW if found_inf else CLEAN)(scaler)
        assert bool(finite) != found_inf
        state, _ = advance(rules, state, found_inf)
        assert (state.scale, state.clean_steps) == (float(scaler.scale), int(scaler.fin_steps)), step


@pytest.mark.parametrize("interval", [2, 3, 6])
@pytest.mark.parametrize("chance", [0.05, 0.3, 0.8])
def test_row_equals_flax_over_random_streams(interval: int, chance: float) -> None:
    """Every scale and every count of every stream is the one that Flax reached; its interval is one less."""
    for seed in range(6):
        draw = random.Random(seed)
        rules = replace(
            FLAX,
            init_scale=draw.choice([65536.0, 1000.1, 2.0**125]),
            growth_factor=draw.choice([2.0, 1.5]),
            backoff_factor=draw.choice([0.5, 0.75]),
            growth_interval=interval,
            min_scale=draw.choice([FLAX.min_scale, 1.0]),
        )
        assert_equal_scales(rules, [draw.random() < chance for _ in range(60)])


def test_row_equals_flax_at_both_ends() -> None:
    """Flax clamps to float32's largest finite and smallest normal number."""
    assert_equal_scales(replace(FLAX, init_scale=2.0**126, growth_interval=2), [False] * 8 + [True] * 3)
    assert_equal_scales(replace(FLAX, init_scale=2.0**-124), [True] * 5 + [False] * 3)


def test_row_has_the_defaults_of_flax() -> None:
    """The row's numbers are the defaults of DynamicScale, but for the interval, which is one more."""
    default = dynamic_scale.DynamicScale()
    assert (FLAX.init_scale, FLAX.growth_interval) == (default.scale, default.growth_interval + 1)
    assert (FLAX.growth_factor, FLAX.backoff_factor) == (default.growth_factor, default.backoff_factor)
    assert FLAX.min_scale == float(default.minimum_scale)
