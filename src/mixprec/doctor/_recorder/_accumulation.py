"""What the sum of micro-batches loses where gradients are kept in 16 bits, beside the same sum in float32."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from mixprec.doctor._recorder._numbers import dense, sample
from mixprec.doctor._recorder._quiet import quiet

__all__ = ["Accumulation"]

HALF = (torch.float16, torch.bfloat16)
PARAMETERS = 8
"""Of each optimizer."""
ELEMENTS = 1024


@dataclass
class _Sum:
    """The gradients that one parameter was given: added up in float32, and as they are added to `.grad`."""

    wide: Tensor
    narrow: Tensor


class Accumulation:
    """Adds up in float32 what backward passes give to a few 16-bit parameters. **Cost** a hook on each of them."""

    def __init__(self) -> None:
        self.backwards = 0
        self._sums: dict[int, _Sum] = {}
        self._watched: weakref.WeakSet[Tensor] = weakref.WeakSet()

    def begins(self, optimizers: Iterable[Optimizer]) -> None:
        """A backward begins; sums start from what stands in `.grad`."""
        self.backwards += 1
        for parameter in (p for optimizer in optimizers for p in _chosen(optimizer)):
            if parameter not in self._watched:
                self._watched.add(parameter)
                parameter.register_hook(self._hook(id(parameter)))  # type: ignore[no-untyped-call] # torch leaves it untyped
            if parameter.grad is None:
                self._sums.pop(id(parameter), None)
            elif self.backwards == 1 or id(parameter) not in self._sums or not parameter.grad.any():
                start = sample(parameter.grad, ELEMENTS)
                self._sums[id(parameter)] = _Sum(start.float(), start.clone())

    def _hook(self, key: int) -> Callable[[Tensor], None]:
        def given(gradient: Tensor) -> None:
            with quiet():
                new = sample(gradient, ELEMENTS)
                known = self._sums.get(key)
                if known is None:
                    self._sums[key] = _Sum(new.float(), new.clone())
                else:
                    known.wide, known.narrow = known.wide + new.float(), known.narrow + new.to(known.narrow.dtype)

        return given

    def error(self, optimizer: Optimizer) -> float | None:
        """The relative error of the sums in `.grad`; None where nothing was added up, or not as it was foreseen."""
        if self.backwards < 2:
            return None
        delta, norm = 0.0, 0.0
        for parameter in _chosen(optimizer):
            known, held = self._sums.get(id(parameter)), parameter.grad
            if known is None or held is None or not torch.equal(sample(held, ELEMENTS), known.narrow):
                continue
            pair = torch.stack([(known.narrow.float() - known.wide).norm(), known.wide.norm()]).double().cpu().tolist()
            if all(map(math.isfinite, pair)):
                delta, norm = delta + pair[0] ** 2, norm + pair[1] ** 2
        return math.sqrt(delta / norm) if norm > 0 else None

    def ends(self) -> None:
        """A step is over."""
        self.backwards = 0


def _chosen(optimizer: Optimizer) -> list[Tensor]:
    low = [
        p
        for group in optimizer.param_groups
        for p in group["params"]
        if p.dtype in HALF and p.requires_grad and p.is_leaf and dense(p).numel()
    ]
    return low[:: max(1, len(low) // PARAMETERS)][:PARAMETERS]
