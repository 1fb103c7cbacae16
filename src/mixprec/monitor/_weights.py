"""What a step did to the weights is seen on a sample, taken before and after it; buffers are looked at afterwards.

A weight that had a gradient and is the same after the step has lost its update to rounding.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec._lowbit import LowBit
from mixprec.monitor._gradients import local
from mixprec.monitor._modules import path_of
from mixprec.monitor._numbers import Numbers
from mixprec.monitor._samples import per_tensor, sampled

__all__ = ["BufferWatch", "WeightsRead", "WeightsWatch", "compensates"]

HALF = (torch.float16, torch.bfloat16)
LARGEST_BUFFER = 1 << 20


@dataclass
class WeightsRead:
    """Names of the weights that were sampled, in the order of the numbers under "weights_bad"."""

    names: list[str] = field(default_factory=list)


class WeightsWatch:
    """The samples of one optimizer's step.

    `compensated`: what rounding takes from 16-bit weights the optimizer keeps elsewhere, so that they lose nothing.
    """

    def __init__(
        self, params: Sequence[Tensor], names: Mapping[int, str], elements: int, *, compensated: bool = False
    ) -> None:
        self._groups = [
            _Group(same, [names.get(id(p), "?") for p in same], elements, compensated)
            for same in _grouped(params).values()
        ]

    def after(self, numbers: Numbers) -> WeightsRead:
        """Adds what the step changed. **Cost**: about 15 small kernels per dtype, on the samples."""
        read = WeightsRead()
        for group in self._groups:
            read.names += group.after(numbers)
        return read


def compensates(optimizer: Optimizer) -> bool:
    """Whether `optimizer` keeps what rounding takes: `KahanSum`, `StochasticRounding`, or a state that says so."""
    first = next(iter(optimizer.state.values()), None)
    kept = first if isinstance(first, dict) else {}
    return isinstance(optimizer, LowBit) or any(_KEPT.search(str(key)) for key in kept)


_KEPT = re.compile("master|kahan|compensation|residual", re.IGNORECASE)


def _grouped(params: Iterable[Tensor]) -> dict[tuple[torch.device, torch.dtype], list[Tensor]]:
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in params:
        if parameter.dtype.is_floating_point and local(parameter).numel():
            groups.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    return groups


class _Group:
    """Weights of one dtype on one device."""

    def __init__(self, params: Sequence[Tensor], names: list[str], elements: int, compensated: bool) -> None:
        self._names, self._half = names, params[0].dtype in HALF and not compensated
        self._views = [sampled(local(p), elements) for p in params]
        self._before = torch.cat(self._views)
        gradients = [sampled(local(p.grad), elements) for p in params]
        alike = all(v.shape == g.shape for v, g in zip(self._views, gradients, strict=True))
        self._had_gradient = torch.cat(gradients) != 0 if alike else None

    def after(self, numbers: Numbers) -> list[str]:
        before, after = self._before.to(torch.float32), torch.cat(self._views)
        if self._had_gradient is not None:
            same = torch.stack(((after == self._before) & self._had_gradient, self._had_gradient))
            numbers.add("unchanged_half" if self._half else "unchanged_wide", same.sum(1))
        wide = after.to(torch.float32)
        squares = torch.stack(((wide - before).square().sum(), before.square().sum()))
        numbers.add("update_squares", squares)
        bad = per_tensor(~torch.isfinite(wide).unsqueeze(0), [view.numel() for view in self._views])
        numbers.add("weights_bad", bad)
        return self._names


class BufferWatch:
    """Buffers that were finite at the start, when they were added; masks of minus infinity were not."""

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[weakref.ref[nn.Module], str]] = {}

    def attach(self, model: nn.Module, prefix: str = "") -> None:
        """Remembers the buffers of `model` that are finite now. **Cost**: a host sync per buffer, once."""
        for name, module in model.named_modules():
            for own, buffer in module.named_buffers(recurse=False):
                path = ".".join(part for part in (prefix, path_of(name), own) if part)
                if _worth_looking(buffer) and bool(torch.isfinite(buffer).all()):
                    self._buffers[path] = (weakref.ref(module), own)

    def look(self, numbers: Numbers) -> list[str]:
        """Adds the extremes of each buffer under "buffers"; their names in that order."""
        names = []
        for path, (reference, own) in self._buffers.items():
            buffer = getattr(reference(), own, None)
            if isinstance(buffer, Tensor) and _worth_looking(buffer):
                for end in torch.aminmax(buffer.detach()):
                    numbers.add("buffers", end)
                names.append(path)
        return names


def _worth_looking(buffer: Tensor) -> bool:
    small = 0 < buffer.numel() <= LARGEST_BUFFER
    return small and buffer.is_floating_point() and buffer.layout is torch.strided and buffer.device.type != "meta"
