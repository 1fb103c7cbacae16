"""A master step is told everything in plain lists: five tensors per parameter that lie alike, a count, and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["Held", "Hyper", "MasterUpdate", "Part"]


@dataclass(frozen=True)
class Hyper:
    """The numbers of an AdamW parameter group."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float


@dataclass(frozen=True, eq=False)
class Held:
    """What stays from step to step: as long as it is the same object, its tensors are where they were.

    `weights` are float16 or bfloat16; `masters`, `exp_avgs` and `exp_avg_sqs` are float32. The i-th tensors of all four
    have one shape and equal strides, without gaps. `steps` are 0-dim float32, on the same device.
    """

    weights: Sequence[Tensor]
    masters: Sequence[Tensor]
    exp_avgs: Sequence[Tensor]
    exp_avg_sqs: Sequence[Tensor]
    steps: Sequence[Tensor]


@dataclass(frozen=True)
class Part:
    """The parameters of one group that take part in a step; `gradients` have the dtype and layout of the weights."""

    hyper: Hyper
    gradients: Sequence[Tensor]
    held: Held


class MasterUpdate(Protocol):
    """One step of AdamW on masters, and the weights rounded from them."""

    def __call__(self, parts: Sequence[Part], grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        """Steps `parts` with their gradients divided by `grad_scale`, unless `found_inf` is 1: then nothing changes.

        Both are 0-dim float32 tensors on the device of `parts`, or None.
        """
