"""Other systems' layouts, one row each: what identifies it, how it is read, how it is written.

- `torch`: `torch.amp.GradScaler.state_dict()`; keys from torch 2.13.0, `torch/amp/grad_scaler.py`
- `apex`: `apex.amp.state_dict()` of one loss; keys from Apex 24.04.01, `apex/amp/frontend.py`
- `deepspeed-zero`: `vars()` of the `loss_scaler` object in a ZeRO optimizer's state, and
  `deepspeed-fp16`: the scale's entries of an `FP16_Optimizer`'s state; keys from DeepSpeed 0.19.8,
  `deepspeed/runtime/fp16/loss_scaler.py` and `fused_optimizer.py`
- `megatron`: `grad_scaler` in a Megatron optimizer's state; keys from megatron-core 0.16.1,
  `megatron/core/optimizer/grad_scaler.py`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mixprec import presets
from mixprec._loss_scale import Refill, State
from mixprec._scale_layouts._checkpoint import ScaleCheckpoint
from mixprec._scale_layouts._entries import count, entry, flag, number, refuse, section, whole
from mixprec.errors import CheckpointError

__all__ = ["SYSTEMS", "System", "Values"]


@dataclass(frozen=True)
class Values:
    """What a layout carries: some fields of `Rules`, the state, and the steps where it counts them."""

    rules: Mapping[str, Any]
    state: State
    steps: int | None = None


@dataclass(frozen=True)
class System:
    """One layout. `write` gives plain numbers; `settings` says where the system takes rules that it does not save."""

    preset: presets.Preset
    recognises: Callable[[Mapping[str, Any]], bool]
    keys: str
    read: Callable[[Mapping[str, Any]], Values]
    write: Callable[[ScaleCheckpoint], dict[str, Any]]
    settings: Mapping[str, str] = field(default_factory=dict)


def _with_keys(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda mapping: all(key in mapping for key in keys)


def _read_torch(saved: Mapping[str, Any]) -> Values:
    rules = {
        "growth_factor": number(saved, "growth_factor"),
        "backoff_factor": number(saved, "backoff_factor"),
        "growth_interval": count(saved, "growth_interval"),
    }
    return Values(rules, State(number(saved, "scale"), count(saved, "_growth_tracker")))


def _write_torch(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    return {
        "scale": checkpoint.state.scale,
        "growth_factor": checkpoint.rules.growth_factor,
        "backoff_factor": checkpoint.rules.backoff_factor,
        "growth_interval": checkpoint.rules.growth_interval,
        "_growth_tracker": checkpoint.state.clean_steps,
    }


_APEX_KEY = re.compile(r"loss_scaler\d+")


def _is_apex(saved: Mapping[str, Any]) -> bool:
    return all(isinstance(key, str) and _APEX_KEY.fullmatch(key) for key in saved)


def _read_apex(saved: Mapping[str, Any]) -> Values:
    scalers = [key for key in saved if _APEX_KEY.fullmatch(str(key))]
    if len(scalers) != 1:
        key = scalers[1] if scalers else "loss_scaler0"
        message = f"The saved state has {len(scalers)} loss scales; accepted is one, as {{'loss_scaler0': …}}."
        raise CheckpointError(key, message)
    scaler = section(saved, scalers[0])
    return Values({}, State(number(scaler, "loss_scale"), count(scaler, "unskipped")))


def _write_apex(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    state = checkpoint.state
    return {"loss_scaler0": {"loss_scale": state.scale, "unskipped": state.clean_steps}}


def _read_iterations(saved: Mapping[str, Any], allowance: int = 0) -> tuple[State, int]:
    """DeepSpeed's state: it saves the next iteration and the last one that overflowed, -1 before the first."""
    steps, last_overflow = count(saved, "cur_iter"), whole(saved, "last_overflow_iter")
    if not -1 <= last_overflow < steps:
        raise refuse(
            "last_overflow_iter", last_overflow, f"a whole number from -1 to cur_iter - 1, which is {steps - 1}"
        )
    return State(number(saved, "cur_scale"), steps - last_overflow - 1, allowance), steps


def _write_iterations(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    clean_steps = checkpoint.state.clean_steps
    steps = max(checkpoint.steps or 0, clean_steps)
    return {"cur_scale": checkpoint.state.scale, "cur_iter": steps, "last_overflow_iter": steps - clean_steps - 1}


def _read_factor(saved: Mapping[str, Any]) -> dict[str, Any]:
    factor = number(saved, "scale_factor")
    if factor <= 1.0:
        raise refuse("scale_factor", factor, "a number above 1")
    interval = count(saved, "scale_window")
    return {"growth_factor": factor, "backoff_factor": 1.0 / factor, "growth_interval": interval}


def _write_factor(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    rules = checkpoint.rules
    return {"scale_factor": rules.growth_factor, "scale_window": rules.growth_interval}


def _read_zero(saved: Mapping[str, Any]) -> Values:
    rules = _read_factor(saved) | {
        "min_scale": number(saved, "min_scale"),
        "hysteresis": count(saved, "delayed_shift"),
        "refill": Refill.AT_CLEAN_STEP if flag(saved, "consecutive_hysteresis") else Refill.AT_GROWTH,
        "floor_patience": 1 if flag(saved, "raise_error_at_min_scale") else None,
    }
    state, steps = _read_iterations(saved, allowance=max(whole(saved, "cur_hysteresis") - 1, 0))
    return Values(rules, state, steps)


def _write_zero(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    rules = checkpoint.rules
    return (
        _write_iterations(checkpoint)
        | _write_factor(checkpoint)
        | {
            "min_scale": rules.min_scale,
            "delayed_shift": rules.hysteresis,
            "cur_hysteresis": checkpoint.state.allowance + 1,
            "consecutive_hysteresis": rules.refill is not Refill.AT_GROWTH,
            "raise_error_at_min_scale": rules.floor_patience is not None,
        }
    )


def _read_fp16(saved: Mapping[str, Any]) -> Values:
    if not entry(saved, "dynamic_loss_scale"):
        message = "The saved loss scale is a static one: it has a value, but no rules or counts to restore."
        raise CheckpointError("dynamic_loss_scale", message)
    state, steps = _read_iterations(saved)
    return Values(_read_factor(saved), state, steps)


def _write_fp16(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    return {"dynamic_loss_scale": True} | _write_iterations(checkpoint) | _write_factor(checkpoint)


def _read_megatron(saved: Mapping[str, Any]) -> Values:
    allowance = max(whole(saved, "hysteresis_tracker") - 1, 0)  # 0 or less once it is used up
    return Values({}, State(number(saved, "scale"), count(saved, "growth_tracker"), allowance))


def _write_megatron(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    state = checkpoint.state
    return {
        "scale": state.scale,
        "growth_tracker": state.clean_steps,
        "hysteresis_tracker": state.allowance + 1,
    }


SYSTEMS: Mapping[str, System] = {
    "torch": System(
        presets.TORCH,
        _with_keys("scale", "growth_interval", "_growth_tracker"),
        "scale, growth_factor, backoff_factor, growth_interval, _growth_tracker",
        _read_torch,
        _write_torch,
    ),
    "apex": System(
        presets.APEX,
        _is_apex,
        "loss_scaler0: loss_scale, unskipped",
        _read_apex,
        _write_apex,
        {
            "min_scale": "amp.initialize(min_loss_scale=…)",
            "max_scale": "amp.initialize(max_loss_scale=…)",
        },
    ),
    "deepspeed-zero": System(
        presets.DEEPSPEED_ZERO,
        _with_keys("cur_scale", "cur_iter", "cur_hysteresis"),
        "cur_scale, cur_iter, last_overflow_iter, scale_factor, scale_window, min_scale, delayed_shift, "
        "cur_hysteresis, consecutive_hysteresis, raise_error_at_min_scale",
        _read_zero,
        _write_zero,
    ),
    "deepspeed-fp16": System(
        presets.DEEPSPEED_FP16,
        _with_keys("cur_scale", "cur_iter", "dynamic_loss_scale"),
        "dynamic_loss_scale, cur_scale, cur_iter, last_overflow_iter, scale_factor, scale_window",
        _read_fp16,
        _write_fp16,
        {"min_scale": "the configuration's fp16.min_loss_scale"},
    ),
    "megatron": System(
        presets.MEGATRON,
        _with_keys("scale", "growth_tracker", "hysteresis_tracker"),
        "scale, growth_tracker, hysteresis_tracker",
        _read_megatron,
        _write_megatron,
        {
            "growth_interval": "--loss-scale-window",
            "hysteresis": "--hysteresis",
            "min_scale": "--min-loss-scale",
            "growth_factor": "DynamicGradScaler(growth_factor=…)",
            "backoff_factor": "DynamicGradScaler(backoff_factor=…)",
        },
    ),
}
