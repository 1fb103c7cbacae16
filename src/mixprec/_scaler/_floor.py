"""A scale that sits at its floor is reported on time, and the host looks at the device as rarely as that allows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mixprec._loss_scale import Rules, floor_error
from mixprec._scale_tensors import ScaleTensors
from mixprec.errors import LossScaleFloorError


class FloorLook:
    """When to look at the count of overflows at the floor.

    It cannot reach the patience before as many updates have passed as are missing, so the host looks only then: about
    once every `floor_patience` updates. On CUDA the numbers are copied while the device goes on, and read at the next
    update: no sync, and the error comes one update later, the same one on every rank.
    """

    def __init__(self, rules: Rules, floor_overflows: int) -> None:
        self._copied: Any = None
        self._wait(rules, floor_overflows)

    def _wait(self, rules: Rules, floor_overflows: int) -> None:
        self._left = max(1, (rules.floor_patience or 0) - floor_overflows)
        self._copy: Tensor | None = None

    def updated(self, rules: Rules, tensors: ScaleTensors) -> LossScaleFloorError | None:
        """To be called after every update; the error that is due. Cost: mostly nothing."""
        if rules.floor_patience is None:
            return None
        if self._copy is not None:
            self._copied.synchronize()
            return self._judge(rules, self._copy, since=1)
        self._left -= 1
        if self._left > 0:
            return None
        numbers = torch.stack((tensors.scale, tensors.floor_overflows.to(torch.float32)))
        if tensors.scale.is_cuda:
            self._copy = numbers.to("cpu", non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's own
            self._copied.record()
            return None
        return self._judge(rules, numbers, since=0)

    def _judge(self, rules: Rules, numbers: Tensor, since: int) -> LossScaleFloorError | None:
        scale, overflows = numbers.tolist()
        self._wait(rules, int(overflows) + since)
        return floor_error(rules, scale, int(overflows))
