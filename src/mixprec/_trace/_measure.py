"""What a tensor held is seven numbers, and taking them never holds the tensor: zeros, subnormals, Infs, NaNs, largest
and smallest magnitude.

On the CPU numbers are there at once and most tensors need two or three kernels, because the extremes already say that
the counts are 0. Elsewhere the numbers stay on the device in one small tensor until many are read together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from mixprec.records import TensorStats

__all__ = ["Measured", "measure", "settle"]

_NARROW = frozenset(d for d in vars(torch).values() if isinstance(d, torch.dtype) and "float8" in str(d))


@dataclass
class Measured:
    """Numbers of one tensor, on the host (`stats`) or still on the device (`row`, until `settle`)."""

    stats: TensorStats
    row: Tensor | None = None


def measure(tensor: Tensor, counts: bool = True) -> Measured:
    """The statistics of `tensor`; dtype and shape alone for what holds no floating-point numbers or cannot be read.

    `counts=False` leaves zeros, subnormals and `amin` out of a finite tensor on the CPU.

    **Cost** on the CPU 1 kernel without counts, 3 to 9 with; elsewhere 20 and no host sync. Nothing is kept but 7
    numbers.
    """
    plain = _plain(tensor)
    blank = TensorStats(_name(tensor.dtype), tuple(tensor.shape), tensor.numel())
    if plain is None or not plain.numel() or plain.device.type == "meta":
        return Measured(blank)
    try:
        with torch.no_grad():
            if plain.device.type == "cpu":
                return Measured(_with(blank, _on_host(plain, counts)))
            return Measured(blank, _on_device(plain))
    except (RuntimeError, NotImplementedError):  # a dtype or layout without such kernels: nothing is known of it
        return Measured(blank)


def settle(measured: Iterable[Measured]) -> None:
    """Brings what is still on a device to the host. **Cost** one copy and one sync per device."""
    waiting: dict[torch.device, list[Measured]] = {}
    for one in measured:
        if one.row is not None:
            waiting.setdefault(one.row.device, []).append(one)
    for several in waiting.values():
        rows = torch.stack([one.row for one in several if one.row is not None]).tolist()
        for one, row in zip(several, rows, strict=True):
            one.stats, one.row = _with(one.stats, tuple(row)), None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _with(blank: TensorStats, row: tuple[float, ...]) -> TensorStats:
    zeros, subnormals, infs, nans, amax, amin, negative = row
    return TensorStats(
        blank.dtype,
        blank.shape,
        blank.numel,
        int(zeros),
        int(subnormals),
        int(infs),
        int(nans),
        amax + 0.0,  # a negative 0 becomes 0
        0.0 if math.isinf(amin) else amin + 0.0,
        int(negative),
    )


def _plain(tensor: Tensor) -> Tensor | None:
    """The strided floating-point numbers behind `tensor`: a DTensor's own shard, a complex tensor's parts."""
    local = getattr(tensor, "_local_tensor", tensor)
    if type(local) not in (Tensor, torch.nn.Parameter) or local.layout != torch.strided:
        return None
    if local.is_complex():
        local = torch.view_as_real(local.resolve_conj())
    if not local.is_floating_point():
        return None
    return local.float() if local.dtype in _NARROW else local


def _on_host(x: Tensor, counts: bool) -> tuple[float, ...]:
    """The seven numbers; each kernel runs only where the ones before it leave something to count."""
    low, high = (float(v) for v in torch.aminmax(x))
    infs = nans = negative = 0
    amax = max(-low, high, 0.0)
    if not math.isfinite(low) or not math.isfinite(high):
        nans = int(torch.isnan(x).sum())
        infs = int(torch.isinf(x).sum())
        negative = int((x == -torch.inf).sum()) if infs else 0
        x = torch.where(torch.isfinite(x), x, torch.zeros((), dtype=x.dtype))
        low, high = (float(v) for v in torch.aminmax(x))
        amax = max(-low, high)
    elif not counts:
        return 0, 0, infs, nans, amax, 0.0, negative
    zeros = x.numel() - int(torch.count_nonzero(x)) - infs - nans
    amin = amax if low == high else _smallest(x, zeros + infs + nans)
    subnormals = 0
    if 0 < amin < torch.finfo(x.dtype).tiny:
        magnitudes = x.abs()
        subnormals = int(((magnitudes > 0) & (magnitudes < torch.finfo(x.dtype).tiny)).sum())
    return zeros, subnormals, infs, nans, amax, amin, negative


def _smallest(x: Tensor, zeros: int) -> float:
    """The smallest magnitude in `x` that is not 0; Inf where all are 0."""
    magnitudes = x.abs()
    if zeros:
        magnitudes = magnitudes.masked_fill_(magnitudes == 0, torch.inf)
    return float(magnitudes.amin())


def _on_device(x: Tensor) -> Tensor:
    """The seven numbers as one tensor (float64, or float32 where the device has none); no sync."""
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    magnitudes = x.abs()
    finite = magnitudes < torch.inf
    present = finite & (magnitudes > 0)
    numbers = (
        (magnitudes == 0).sum(),
        (present & (magnitudes < torch.finfo(x.dtype).tiny)).sum(),
        (magnitudes == torch.inf).sum(),
        (magnitudes != magnitudes).sum(),
        magnitudes.masked_fill(~finite, 0).amax(),
        magnitudes.masked_fill(~present, torch.inf).amin(),
        (x == -torch.inf).sum(),
    )
    return torch.stack([number.to(wide) for number in numbers])
