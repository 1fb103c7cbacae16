"""A step is right when every gradient divided by the scale is finite; one read of the scaled gradients decides it.

A finite norm proves that every element is finite. Two readers turn that into an exact answer. On the host's own memory
`HostReader` looks at the norm and reads again only where it overflowed. On an accelerator a look would stall, so
`WaitlessReader` adds up in float64, where no float32 gradient can overflow, and its numbers stay on the device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mixprec._agreement import Agreement
from mixprec._gradients._amax import amax, host_amax, waitless_amax
from mixprec._gradients._collect import Gradients
from mixprec._gradients._norm import host_square_sum, look_again, wide, wide_square_sum
from mixprec._gradients._place import float32, host_number, moved
from mixprec._gradients._plan import HOST_READS

CLIP_EPSILON = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to the norm before it divides; kept, so that both clip alike."""

_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read found: `found_inf` (0 or 1) and the square sum of the gradients as they are, scaled or not.

    `amax` is the largest magnitude of scaled gradients, None where nobody asked for it. Python numbers from
    `HostReader`, 0-dim tensors from `WaitlessReader`.
    """

    found_inf: Any
    square_sum: Any
    amax: Any = None


@dataclass(frozen=True, slots=True)
class Clipping:
    """The global 2-norm of the unscaled gradients and what to multiply them by; 1 where nothing is to be clipped."""

    norm: Any
    coefficient: Any


class Reader(ABC):
    """Reads gradients, and does the arithmetic of a step on numbers that lie where this reader leaves them."""

    @abstractmethod
    def read(self, gradients: Gradients, scale: Tensor | None, device: torch.device) -> Reading:
        """Reads the gradients of this rank, which carry `scale` (None: they are unscaled)."""

    @abstractmethod
    def amax(self, gradients: Gradients, device: torch.device) -> Any:
        """The largest magnitude of the gradients of this rank, 0 of none. Cost: one more read."""

    @abstractmethod
    def number(self, flag: Tensor) -> Any:
        """A flag that lies in a tensor, as this reader holds numbers."""

    @abstractmethod
    def either(self, known: Reading, read: Reading) -> Reading:
        """The same gradients judged twice: found if either found something."""

    @abstractmethod
    def unscaled(self, reading: Reading, scale: Tensor | None) -> Reading:
        """The reading that the same gradients without `scale` would have given."""

    @abstractmethod
    def agreed(self, readings: Iterable[Reading], agreement: Agreement, device: torch.device) -> Reading:
        """All `readings` of all ranks as one. Cost: one small collective where several ranks take part.

        They have an `amax` all or none, on all ranks.
        """

    @abstractmethod
    def clipping(self, reading: Reading, scale: Tensor | None, max_norm: float | None) -> Clipping:
        """How to clip to `max_norm`; None clips nothing."""

    @abstractmethod
    def divisor(self, scale: Tensor, coefficient: Any) -> Tensor:
        """`scale` / `coefficient`, 0-dim float32: what a fused optimizer divides the gradients by."""

    @abstractmethod
    def multiplier(self, scale: Tensor | None, coefficient: Any) -> Tensor | None:
        """`coefficient` / `scale`, 0-dim float32: what the gradients are multiplied by; None if that is 1."""

    @abstractmethod
    def tensor(self, number: Any, device: torch.device) -> Tensor:
        """`number` as a 0-dim float32 tensor on `device`."""


class HostReader(Reader):
    """For gradients in the host's own memory: every number is a Python float, at no cost."""

    def read(self, gradients: Gradients, scale: Tensor | None, device: torch.device) -> Reading:
        if not gradients.tensors:
            return Reading(0.0, 0.0)
        finite, total = True, host_square_sum(gradients)
        if not math.isfinite(total):
            finite, total = look_again(gradients)
        if finite and scale is not None:
            finite = _stays_finite(gradients, scale)
        return Reading(0.0 if finite else 1.0, total)

    def amax(self, gradients: Gradients, device: torch.device) -> float:
        return host_amax(gradients)

    def number(self, flag: Tensor) -> float:
        return min(host_number(flag), 1.0)

    def either(self, known: Reading, read: Reading) -> Reading:
        return Reading(max(known.found_inf, read.found_inf), read.square_sum)

    def unscaled(self, reading: Reading, scale: Tensor | None) -> Reading:
        if scale is None:
            return reading
        value = host_number(scale)
        return Reading(reading.found_inf, reading.square_sum / value / value if value else math.inf)

    def agreed(self, readings: Iterable[Reading], agreement: Agreement, device: torch.device) -> Reading:
        all_read = list(readings)
        found, total = max(reading.found_inf for reading in all_read), sum(reading.square_sum for reading in all_read)
        largest = None if all_read[0].amax is None else max(reading.amax for reading in all_read)
        if agreement.size == 1:
            return Reading(found, total, largest)
        vector = torch.tensor((found, total), dtype=wide(device), device=device)
        if largest is None:
            found, total = agreement.total(vector).tolist()
        else:
            vector, most = agreement.total_and_largest(vector, vector.new_tensor(largest))
            (found, total), largest = vector.tolist(), host_number(most)
        return Reading(min(found, 1.0), total, largest)

    def clipping(self, reading: Reading, scale: Tensor | None, max_norm: float | None) -> Clipping:
        divisor = 1.0 if scale is None else host_number(scale)
        norm = math.sqrt(reading.square_sum) / divisor if divisor else math.inf
        if max_norm is None or reading.found_inf:
            return Clipping(norm, 1.0)
        return Clipping(norm, min(1.0, max_norm / (norm + CLIP_EPSILON)))

    def divisor(self, scale: Tensor, coefficient: float) -> Tensor:
        if coefficient == 1.0:
            return scale
        return float32(min(host_number(scale) / coefficient, _LARGEST) if coefficient else _LARGEST, scale.device)

    def multiplier(self, scale: Tensor | None, coefficient: float) -> Tensor | None:
        if scale is None:
            return None if coefficient == 1.0 else torch.full((), coefficient)
        value = host_number(scale)
        return float32(coefficient / value if value else math.inf, scale.device)

    def tensor(self, number: float, device: torch.device) -> Tensor:
        return float32(number, device)


def _stays_finite(gradients: Gradients, scale: Tensor) -> bool:
    """Whether finite gradients are still finite after the division by `scale`; only a scale below 1 can break that."""
    value = host_number(scale)
    if value >= 1.0:
        return True
    if value == 0.0:
        return False
    return all(
        math.isfinite(torch.tensor(amax([t]) / value, dtype=torch.float64).to(t.dtype).item())
        for t in gradients.tensors
    )


class WaitlessReader(Reader):
    """For accelerators: no number is read by the host, so nothing waits.

    `below_one` says that the scale may be below 1, where a division can overflow: that takes a second read.
    """

    def __init__(self, below_one: bool = False) -> None:
        self.below_one = below_one

    def read(self, gradients: Gradients, scale: Tensor | None, device: torch.device) -> Reading:
        total = wide_square_sum(gradients, device)
        found = torch.logical_not(torch.isfinite(total))
        below_one = self.below_one and scale is not None
        if below_one or any(tensor.dtype is torch.float64 for tensor in gradients.tensors):
            found = torch.logical_not(_extremes_finite(gradients, scale if below_one else None, device))
        return Reading(found.to(total.dtype), total)

    def amax(self, gradients: Gradients, device: torch.device) -> Tensor:
        return waitless_amax(gradients, device)

    def number(self, flag: Tensor) -> Tensor:
        return flag.to(wide(flag.device)).clamp(max=1.0)

    def either(self, known: Reading, read: Reading) -> Reading:
        return Reading(torch.maximum(known.found_inf, read.found_inf), read.square_sum)

    def unscaled(self, reading: Reading, scale: Tensor | None) -> Reading:
        if scale is None:
            return reading
        return Reading(reading.found_inf, reading.square_sum / scale / scale)

    def agreed(self, readings: Iterable[Reading], agreement: Agreement, device: torch.device) -> Reading:
        all_read = list(readings)
        found, total = _added([(reading.found_inf, reading.square_sum) for reading in all_read], device)
        largest = [moved(reading.amax, device) for reading in all_read if reading.amax is not None]
        most = torch.stack(largest).amax() if largest else None
        if agreement.size > 1:
            vector = torch.stack((found, total))
            if most is None:
                vector = agreement.total(vector)
            else:
                vector, most = agreement.total_and_largest(vector, most.to(vector.dtype))
            found, total = vector.unbind()
        return Reading(found.clamp(max=1.0), total, most)

    def clipping(self, reading: Reading, scale: Tensor | None, max_norm: float | None) -> Clipping:
        norm = reading.square_sum.sqrt()
        if scale is not None:
            norm = norm / scale
        if max_norm is None:
            return Clipping(norm, None)
        coefficient = (max_norm / (norm + CLIP_EPSILON)).clamp(max=1.0)
        return Clipping(norm, torch.where(reading.found_inf > 0, 1.0, coefficient))

    def divisor(self, scale: Tensor, coefficient: Tensor | None) -> Tensor:
        if coefficient is None:
            return scale
        return (scale / coefficient).clamp(max=_LARGEST).float()

    def multiplier(self, scale: Tensor | None, coefficient: Tensor | None) -> Tensor | None:
        if scale is None:
            return None if coefficient is None else coefficient.float()
        inverse = scale.to(wide(scale.device)).reciprocal()
        return (inverse if coefficient is None else inverse * coefficient).float()

    def tensor(self, number: Any, device: torch.device) -> Tensor:
        if isinstance(number, Tensor):
            return moved(number, device).to(torch.float32)
        return torch.full((), number, dtype=torch.float32, device=device)


def _added(pairs: list[tuple[Tensor, Tensor]], device: torch.device) -> tuple[Tensor, Tensor]:
    if len(pairs) == 1:
        return pairs[0]
    found = torch.stack([moved(found, device) for found, _ in pairs]).amax()
    return found, torch.stack([moved(total, device) for _, total in pairs]).sum()


def _extremes_finite(gradients: Gradients, scale: Tensor | None, device: torch.device) -> Tensor:
    """Whether the largest magnitude of every tensor, divided by `scale` in the tensor's dtype, is finite."""
    finite = [torch.ones((), dtype=torch.bool, device=device)]
    for tensor in gradients.tensors:
        if tensor.numel():
            low, high = torch.aminmax(tensor)
            largest = torch.maximum(low.abs(), high).to(wide(tensor.device))
            quotient = largest if scale is None else largest / moved(scale, tensor.device)
            finite.append(moved(torch.isfinite(quotient.to(tensor.dtype)), device))
    return torch.stack(finite).all()


_HOST = HostReader()
_WAITLESS = {below_one: WaitlessReader(below_one) for below_one in (False, True)}


def reader_for(devices: Iterable[torch.device], *, below_one: bool = False) -> Reader:
    """The reader for gradients on `devices`: one that never waits, unless all of them are in the host's memory.

    MPS has no float64, so its gradients are read through the host, which is a sync.
    """
    if {device.type for device in devices} <= HOST_READS and not torch.compiler.is_compiling():
        return _HOST
    return _WAITLESS[below_one]
