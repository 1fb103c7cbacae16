"""The `keras` row against Keras 3's own `LossScaleOptimizer`, run on the torch backend."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mixprec import presets
from mixprec._loss_scale import Rules, advance, initial

os.environ.setdefault("KERAS_BACKEND", "torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what a peer warns about at import is not ours to judge
    keras = pytest.importorskip("keras", reason="Keras is in the extra `peers`")

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:keras"),  # Keras 3.15 uses NumPy in a deprecated way
]

KERAS = presets.KERAS.rules


def keras_update(rules: Rules) -> Callable[[bool], float]:
    """A step of a fresh LossScaleOptimizer around SGD: whether the gradient overflowed -> the scale after it."""
    variable = keras.Variable([1.0, 2.0])
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.0), initial_scale=rules.init_scale, dynamic_growth_steps=rules.growth_interval
    )

    def update(found_inf: bool) -> float:
        gradient: Any = [float("inf") if found_inf else 0.0, 0.0]
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
        return float(keras.ops.convert_to_numpy(optimizer.dynamic_scale.value))

    return update


def assert_equal_scales(rules: Rules, stream: list[bool]) -> None:
    update, state = keras_update(rules), initial(rules)
    for step, found_inf in enumerate(stream):
        state, _ = advance(rules, state, found_inf)
        assert state.scale == update(found_inf), step


@pytest.mark.parametrize("interval", [1, 2, 5])
@pytest.mark.parametrize("chance", [0.05, 0.3, 0.8])
def test_row_equals_keras_over_random_streams(interval: int, chance: float) -> None:
    """Every scale of every stream is the one that Keras reached."""
    for seed in range(6):
        draw = random.Random(seed)
        rules = replace(KERAS, growth_interval=interval, init_scale=draw.choice([2.0**15, 1000.1, 2.0**-3]))
        assert_equal_scales(rules, [draw.random() < chance for _ in range(60)])


def test_row_equals_keras_at_both_ends() -> None:
    """Keras has no bounds: the scale reaches infinity and stays there, or 0 and stays there."""
    assert_equal_scales(replace(KERAS, init_scale=2.0**126, growth_interval=1), [False] * 4 + [True] * 3)
    assert_equal_scales(replace(KERAS, init_scale=2.0**-147), [True] * 5 + [False] * 3)


def test_row_has_the_defaults_of_keras() -> None:
    """The row's numbers are the defaults of LossScaleOptimizer."""
    config = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0)).get_config()
    assert (KERAS.init_scale, KERAS.growth_interval) == (config["initial_scale"], config["dynamic_growth_steps"])
