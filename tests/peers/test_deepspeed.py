"""The two `deepspeed` rows against DeepSpeed's own scalers, which need neither a GPU nor its compiled ops.

Passes with DeepSpeed 0.19.8, installed beside the environment so that it changes nothing in it:

    DS_BUILD_OPS=0 pip install --no-deps --no-build-isolation --target DIR deepspeed==0.19.8
    pip install --target DIR hjson pydantic py-cpuinfo psutil einops msgpack tqdm ninja
    PYTHONPATH=DIR pytest tests/peers/test_deepspeed.py
"""

from __future__ import annotations

import random
import types
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from mixprec import presets
from mixprec._loss_scale import Refill, Rules, State, advance, initial
from mixprec._scale_layouts import detect, from_layout, to_layout
from mixprec.errors import LossScaleFloorError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what a peer warns about at import is not ours to judge
    loss_scaler = pytest.importorskip("deepspeed.runtime.fp16.loss_scaler", reason="DeepSpeed is installed by hand")
    from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
    from deepspeed.runtime.precision_config import DeepSpeedFP16Config

pytestmark = pytest.mark.peers

Update = Callable[[bool], float]


def zero_update(rules: Rules) -> Update:
    """ZeRO's scaler as its factory builds it from the `fp16` section."""
    scaler = loss_scaler.CreateLossScaler(torch.half, 0, True, arguments(rules))
    loss_scaler.dist.get_rank = lambda: 1  # any rank but 0 logs nothing

    def update(found_inf: bool) -> float:
        scaler.update_scale(found_inf)
        return float(scaler.cur_scale)

    return update


def fp16_update(kind: type, rules: Rules) -> Update:
    """`_update_scale` of the fused or unfused FP16 optimizer on the loss-scale configuration that they are given."""
    config = loss_scaler.LossScaleConfig(torch.float16, True, 0, arguments(rules))
    optimizer = types.SimpleNamespace(loss_scale_config=config, verbose=False)

    def update(found_inf: bool) -> float:
        kind._update_scale(optimizer, found_inf)
        return float(config.cur_scale)

    return update


def arguments(rules: Rules) -> dict[str, object]:
    return {
        loss_scaler.INITIAL_LOSS_SCALE: rules.init_scale,
        loss_scaler.SCALE_WINDOW: rules.growth_interval,
        loss_scaler.DELAYED_SHIFT: rules.hysteresis,
        loss_scaler.CONSECUTIVE_HYSTERESIS: rules.refill is Refill.AT_CLEAN_STEP,
        loss_scaler.MIN_LOSS_SCALE: rules.min_scale,
    }


def assert_equal_scales(rules: Rules, update: Update, stream: list[bool]) -> None:
    state = initial(rules)
    for step, found_inf in enumerate(stream):
        try:
            state, _ = advance(rules, state, found_inf)
        except LossScaleFloorError:
            with pytest.raises(Exception, match="Current loss scale already at minimum"):
                update(found_inf)
            return
        assert state.scale == update(found_inf), step


@pytest.mark.parametrize("refill", [Refill.AT_GROWTH, Refill.AT_CLEAN_STEP])
@pytest.mark.parametrize("hysteresis", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 3, 10])
def test_zero_row_equals_deepspeed(refill: Refill, hysteresis: int, window: int) -> None:
    """Every scale of every stream is DeepSpeed's, and where the rules raise at the floor, DeepSpeed raises."""
    for seed in range(40):
        draw = random.Random(seed)
        rules = replace(
            presets.DEEPSPEED_ZERO.rules,
            init_scale=draw.choice([2.0**16, 1000.1, 4.0]),
            min_scale=draw.choice([0.25, 1.0]),
            growth_interval=window,
            hysteresis=hysteresis,
            refill=refill,
        )
        chance = draw.choice([0.02, 0.3, 0.8])
        assert_equal_scales(rules, zero_update(rules), [draw.random() < chance for _ in range(120)])


@pytest.mark.parametrize("kind", [FP16_Optimizer, FP16_UnfusedOptimizer])
@pytest.mark.parametrize("window", [1, 3, 10])
def test_fp16_row_equals_deepspeed(kind: type, window: int) -> None:
    """Every scale of every stream is DeepSpeed's, its configured hysteresis notwithstanding."""
    for seed in range(40):
        draw = random.Random(seed)
        rules = replace(
            presets.DEEPSPEED_FP16.rules,
            init_scale=draw.choice([2.0**16, 1000.1, 4.0]),
            min_scale=draw.choice([0.25, 1.0]),
            growth_interval=window,
        )
        configured = fp16_update(kind, replace(rules, hysteresis=draw.choice([1, 2])))
        chance = draw.choice([0.02, 0.3, 0.8])
        assert_equal_scales(rules, configured, [draw.random() < chance for _ in range(120)])


def test_rows_equal_deepspeed_over_their_own_interval() -> None:
    """With the rows' own numbers the first growth comes after 1001 clean steps in both."""
    stream = [False] * 2500 + [True] * 3 + [False] * 1500
    assert_equal_scales(presets.DEEPSPEED_ZERO.rules, zero_update(presets.DEEPSPEED_ZERO.rules), stream)
    assert_equal_scales(presets.DEEPSPEED_FP16.rules, fp16_update(FP16_Optimizer, presets.DEEPSPEED_FP16.rules), stream)


def test_rows_have_the_defaults_of_the_configuration() -> None:
    """The rows' numbers are what an `fp16` section without entries gives."""
    assert arguments(presets.DEEPSPEED_ZERO.rules) == DeepSpeedFP16Config(enabled=True).dynamic_loss_scale_args()
    zero, fp16 = presets.DEEPSPEED_ZERO.rules, presets.DEEPSPEED_FP16.rules
    assert (fp16.init_scale, fp16.growth_interval, fp16.min_scale) == (
        zero.init_scale,
        zero.growth_interval,
        zero.min_scale,
    )


def test_zero_scaler_goes_on_from_a_converted_checkpoint() -> None:
    """A scaler's attributes, read mid-run, are its rules and state; written into a fresh one, they go on as it did."""
    for seed in range(20):
        draw = random.Random(seed)
        rules = replace(presets.DEEPSPEED_ZERO.rules, growth_interval=3, hysteresis=draw.choice([1, 2, 3]))
        scaler = loss_scaler.CreateLossScaler(torch.half, 0, True, arguments(rules))
        for _ in range(draw.randrange(40)):
            scaler.update_scale(draw.random() < 0.2)
        checkpoint = from_layout("deepspeed-zero", vars(scaler))
        conversion = to_layout("deepspeed-zero", checkpoint)
        assert (checkpoint.rules, conversion.losses) == (rules, ())

        fresh = loss_scaler.CreateLossScaler(torch.half, 0, True, arguments(presets.DEEPSPEED_ZERO.rules))
        for key, value in conversion.mapping.items():
            assert hasattr(fresh, key)
            setattr(fresh, key, value)
        assert_equal_scales_from(rules, checkpoint.state, fresh, [draw.random() < 0.2 for _ in range(40)])


def assert_equal_scales_from(rules: Rules, state: State, scaler: Any, stream: list[bool]) -> None:
    for found_inf in stream:
        state, _ = advance(rules, state, found_inf)
        scaler.update_scale(found_inf)
        assert scaler.cur_scale == state.scale


@pytest.mark.parametrize("kind", [FP16_Optimizer, FP16_UnfusedOptimizer])
def test_fp16_optimizers_save_the_layouts_entries(kind: type) -> None:
    """What `state_dict` of either optimizer saves about the scale is read, and written back equal."""
    config = loss_scaler.LossScaleConfig(torch.float16, True, 0, arguments(presets.DEEPSPEED_FP16.rules))
    optimizer = types.SimpleNamespace(
        loss_scale_config=config,
        verbose=False,
        optimizer=torch.optim.SGD([torch.ones(1)]),
        fp32_groups_flat=[],
        fp32_groups=[],
        clip_grad=0.0,
    )
    for found_inf in (False, True, False, False):
        kind._update_scale(optimizer, found_inf)
    saved = kind.state_dict(optimizer)
    assert detect(saved) == "deepspeed-fp16"
    checkpoint = from_layout("deepspeed-fp16", saved)
    assert (checkpoint.state, checkpoint.steps) == (State(2.0**15, 2), 4)
    written = to_layout("deepspeed-fp16", checkpoint).mapping
    assert written == {key: saved[key] for key in written}
