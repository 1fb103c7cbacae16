"""Loss-scale rules that other systems use, one row each, with the source that each was read in and is tested against.

    >>> get("megatron").rules.hysteresis
    2
    >>> [preset.name for preset in all_presets()][:3]
    ['mixprec', 'torch', 'apex']

A row is a starting point: `dataclasses.replace(presets.TORCH.rules, growth_interval=500)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mixprec._loss_scale import Arithmetic, AtMax, Growth, Refill, Rules
from mixprec.errors import UnknownNameError
from mixprec.formats import FP32

__all__ = [
    "APEX",
    "DEEPSPEED_FP16",
    "DEEPSPEED_ZERO",
    "FLAX",
    "KERAS",
    "MEGATRON",
    "MIXPREC",
    "PADDLE",
    "TORCH",
    "Preset",
    "all_presets",
    "get",
]

_NO_FLOOR, _NO_CEILING = 0.0, float("inf")


@dataclass(frozen=True)
class Preset:
    """A named row of loss-scale rules: where they were read, and what to know before using them."""

    name: str
    rules: Rules
    sources: tuple[str, ...]
    note: str


MIXPREC = Preset(
    "mixprec",
    Rules(),
    ("https://docs.pytorch.org/docs/2.13/amp.html", "https://github.com/pytorch/pytorch/issues/99640"),
    "PyTorch's schedule within [1, 2**24]. It raises after 100 consecutive overflows at 1: lower cannot help.",
)

TORCH = Preset(
    "torch",
    Rules(
        min_scale=_NO_FLOOR,
        max_scale=FP32.max,
        at_max=AtMax.HOLD,
        floor_patience=None,
        growth=Growth.EXACTLY,
    ),
    (
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/amp/grad_scaler.py",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cuda/AmpKernels.cu",
    ),
    "No floor: 166 consecutive overflows take the scale from 2**16 to 0, and no step is ever applied again.",
)

APEX = Preset(
    "apex",
    Rules(
        min_scale=_NO_FLOOR,
        floor_patience=None,
        growth=Growth.EXACTLY,
        arithmetic=Arithmetic.FLOAT64,
    ),
    ("https://github.com/NVIDIA/apex/blob/24.04.01/apex/amp/scaler.py",),
    "No floor unless min_loss_scale is given; ceiling 2**24. apex.amp was removed in 2025.",
)

DEEPSPEED_ZERO = Preset(
    "deepspeed-zero",
    Rules(
        growth_interval=1000,
        max_scale=_NO_CEILING,
        hysteresis=2,
        refill=Refill.AT_GROWTH,
        floor_patience=1,
        growth=Growth.EVERY,
        arithmetic=Arithmetic.FLOAT64,
    ),
    (
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/runtime/fp16/loss_scaler.py",
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/runtime/precision_config.py",
    ),
    "ZeRO 1 to 3. The first growth comes after 1001 clean steps; an overflow at the floor ends the run. With "
    "consecutive_hysteresis the allowance refills at every clean step (Refill.AT_CLEAN_STEP).",
)

DEEPSPEED_FP16 = Preset(
    "deepspeed-fp16",
    Rules(
        growth_interval=1000,
        max_scale=_NO_CEILING,
        floor_patience=None,
        growth=Growth.EVERY,
        arithmetic=Arithmetic.FLOAT64,
    ),
    (
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/runtime/fp16/fused_optimizer.py",
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/runtime/fp16/unfused_optimizer.py",
    ),
    "Without ZeRO. The same configuration as deepspeed-zero, but its hysteresis is ignored and the floor never raises. "
    "Built without arguments, the fused optimizer starts at 2**32 and the unfused one has the floor 0.25.",
)

MEGATRON = Preset(
    "megatron",
    Rules(
        init_scale=2.0**32,
        growth_interval=1000,
        max_scale=_NO_CEILING,
        hysteresis=2,
        refill=Refill.AT_GROWTH,
        floor_patience=None,
        growth=Growth.EXACTLY,
    ),
    ("https://github.com/NVIDIA/Megatron-LM/blob/core_v0.16.1/megatron/core/optimizer/grad_scaler.py",),
    "Isolated overflows add up: the allowance refills only when the scale grows. At the floor it skips for ever.",
)

KERAS = Preset(
    "keras",
    Rules(
        init_scale=2.0**15,
        min_scale=_NO_FLOOR,
        max_scale=_NO_CEILING,
        floor_patience=None,
        growth=Growth.EXACTLY,
    ),
    ("https://github.com/keras-team/keras/blob/v3.15.1/keras/src/optimizers/loss_scale_optimizer.py",),
    "No bounds: the scale can reach 0 or infinity, and from either it does not come back.",
)

PADDLE = Preset(
    "paddle",
    Rules(
        min_scale=_NO_FLOOR,
        max_scale=_NO_CEILING,
        floor_patience=None,
        refill=Refill.AT_CLEAN_STEP_OR_BACK_OFF,
        growth=Growth.EXACTLY,
    ),
    (
        "https://github.com/PaddlePaddle/Paddle/blob/00816fcb21ade6ad4425774b0e989c8098c6d324/python/paddle/amp/grad_scaler.py",
        "https://github.com/PaddlePaddle/Paddle/blob/20ffb9f43b99eeaf78dab8e65dac89dc5566ba0e/paddle/phi/kernels/impl/amp_kernel_impl.h",
    ),
    "Dynamic graphs (paddle.amp.GradScaler); decr_every_n_nan_or_inf is hysteresis. Static graphs use a kernel that "
    "also keeps the scale at 1 or more and holds it below infinity: min_scale=1, max_scale=FP32.max, AtMax.HOLD.",
)

FLAX = Preset(
    "flax",
    Rules(
        growth_interval=2001,
        min_scale=FP32.tiny,
        max_scale=FP32.max,
        floor_patience=None,
        growth=Growth.EXACTLY,
    ),
    ("https://github.com/google/flax/blob/v0.12.8/flax/training/dynamic_scale.py",),
    "growth_interval=2000 there is 2001 here: Flax compares before it counts and grows one clean step later.",
)

_ROWS = (MIXPREC, TORCH, APEX, DEEPSPEED_ZERO, DEEPSPEED_FP16, MEGATRON, KERAS, PADDLE, FLAX)
_BY_NAME = {row.name: row for row in _ROWS}


def all_presets() -> tuple[Preset, ...]:
    """Every preset, mixprec's own first."""
    return _ROWS


def get(name: str) -> Preset:
    """The preset called `name`, in any case and with `-` or `_`.

    Raises: UnknownNameError with the closest known names.
    """
    key = name.lower().replace("_", "-")
    if key not in _BY_NAME:
        raise UnknownNameError("preset", name, _BY_NAME)
    return _BY_NAME[key]
