"""An agreement adds small vectors up over ranks; a flag that is up on one of them is then up on all."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Agreement(ABC):
    """Who has to agree. One method to write: `total`. Give an instance as `process_group` to use your own.

    `size` is the number of ranks that take part. Every one of them must call in the same order.
    """

    size: int = 1

    @abstractmethod
    def total(self, values: Tensor) -> Tensor:
        """The element-wise sum over the ranks of a small float vector, the same on all of them. May write `values`."""

    def total_and_largest(self, values: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
        """`total(values)`, and the largest of the 0-dim `largest` of every rank, NaN if one is.

        Sums and maxima do not share a reduction, so every rank gets the numbers of all and does the arithmetic itself.
        `largest` has the dtype of `values`. Needs `gather`.

        **Cost**: one all-gather of a few numbers per rank in place of the all-reduce of `total`, no host sync.
        """
        rows = torch.stack(self.gather(torch.cat((values, largest.reshape(1)))))
        return rows[:, :-1].sum(0), rows[:, -1].amax()

    def agree(self, flag: Tensor) -> Tensor:
        """1 if any rank's 0-dim float `flag` is not 0, else 0. Cost: one collective of a few bytes, no host sync."""
        if self.size == 1:
            return flag
        return (self.total(flag.clone()) != 0).to(flag.dtype)

    def share(self, param: Tensor, grad: Tensor) -> float:
        """Which part of the square sum of `grad` counts on this rank, so that each element counts once in total.

        1 where ranks hold disjoint pieces; 1/n where n ranks hold the same values, which is the default.
        """
        return 1.0 / self.size

    def gather(self, values: Tensor) -> list[Tensor]:
        """`values` of every rank, in an order that is the same on all of them.

        Needed by the check that ranks hold the same scale, and under headroom rules.
        """
        if self.size == 1:
            return [values]
        raise NotImplementedError(f"{type(self).__name__} does not say how to gather; override gather()")


class Alone(Agreement):
    """A single process, or ranks whose gradients are the same already: nothing to send."""

    def total(self, values: Tensor) -> Tensor:
        return values

    def share(self, param: Tensor, grad: Tensor) -> float:
        return 1.0


def on_group_device(values: Tensor, backend: str) -> Tensor:
    """`values` where `backend` can send them: NCCL knows only CUDA tensors."""
    if values.device.type == "cpu" and backend == "nccl":
        return values.to(torch.device("cuda", torch.cuda.current_device()))
    return values
