"""What all parts of the recorder share: numbers for objects, the iteration, and where to write.

Objects are numbered in order of creation and never by `id`, which Python reuses.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from mixprec.doctor._recorder._writer import Writer

__all__ = ["Numbers", "Optimizers", "Scene", "region_dtype", "scale_of", "unwrapped"]


class Numbers:
    """Gives each object a number at its first mention; holds no object alive."""

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next = 0

    def of(self, thing: Any) -> int:
        """The number of `thing`."""
        if thing not in self._numbers:
            self._numbers[thing] = self._next
            self._next += 1
        return self._numbers[thing]

    def known(self, thing: Any) -> bool:
        """Whether `thing` has a number."""
        return thing in self._numbers

    def alive(self) -> list[tuple[int, Any]]:
        """(number, object) of those that still exist, in order."""
        return sorted(((number, thing) for thing, number in self._numbers.items()), key=lambda pair: pair[0])


class Optimizers(Numbers):
    """A wrapper (Accelerate's, for one) is the optimizer that it wraps."""

    def of(self, thing: Any) -> int:
        """The number of the optimizer inside."""
        return super().of(unwrapped(thing))


def unwrapped(optimizer: Any) -> Any:
    """The optimizer that does the work."""
    inner = getattr(optimizer, "optimizer", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer


class Scene:
    """`iteration` counts attempts at an optimizer step, of any optimizer, that are over."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.iteration = 0
        self.optimizers = Optimizers()
        self.scalers = Numbers()
        self.locator: Any = None

    def turn(self) -> None:
        """An attempt at a step is over."""
        self.iteration += 1

    def scaler(self, scaler: Any) -> int | None:
        """The number of an enabled scaler; None for a disabled one, which does nothing."""
        number = self.scalers.of(scaler)
        return number if scaler.is_enabled() else None


def scale_of(scaler: Any) -> float | None:
    """The loss scale now, read without the script's own `get_scale`; None where the scaler is disabled. One sync."""
    if not scaler.is_enabled():
        return None
    scale = getattr(scaler, "_scale", None)
    return float(scale.item()) if isinstance(scale, torch.Tensor) else getattr(scaler, "_init_scale", None)


def region_dtype(device: str | None = None) -> str | None:
    """The dtype that autocast casts to now, None outside a region; on `device`, or on any that is in use."""
    kinds = [device] if device else ["cpu", "cuda", "mps", "xpu"]
    for kind in kinds:
        try:
            if torch.is_autocast_enabled(kind):
                return str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
        except RuntimeError:  # a device type that this build of torch does not know
            continue
    return None
