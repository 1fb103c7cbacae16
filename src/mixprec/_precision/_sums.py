"""A window's gradients are its parameters', summed over its micro-batches, or over the finite ones alone on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["FiniteSums", "has_gradient", "multiply_", "parameters_of"]


def parameters_of(optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """Every parameter, in the order of the optimizers' groups."""
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


def has_gradient(optimizer: Optimizer) -> bool:
    """Whether any parameter of `optimizer` has one."""
    return any(p.grad is not None for p in parameters_of([optimizer]))


@torch.no_grad()
def multiply_(parameters: Sequence[Tensor], factor: float) -> None:
    """Multiply the gradients in place. **Cost**: nothing where `factor` is 1, else one read and one write."""
    if factor == 1.0:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    dense = [g for g in gradients if g.layout is torch.strided]
    if dense:
        torch._foreach_mul_(dense, factor)
    for gradient in gradients:
        if gradient.layout is not torch.strided:
            gradient.mul_(factor)


class FiniteSums:
    """The sums of a window's finite micro-batches, kept apart from the one that is being computed.

    **Cost**: 4 bytes per parameter kept inside a window; per micro-batch one read of its gradients to judge them and
    R 8 W 4 to add them, and a host sync.
    """

    def __init__(self) -> None:
        self.sums: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def admit(self, parameters: Sequence[Tensor]) -> bool:
        """Move the gradients into the sums if all are finite; returns whether they were. Else they stay in place."""
        given = [p for p in parameters if p.grad is not None]
        if not _all_finite([p.grad for p in given if p.grad is not None]):
            return False
        for parameter in given:
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                held = self.sums.get(parameter)
                self.sums[parameter] = gradient if held is None else held.add_(gradient)
        return True

    def deliver(self) -> None:
        """Put the sums where optimizers look for gradients, in place of what is there, and forget them."""
        for parameter, gradient in self.sums.items():
            parameter.grad = gradient
        self.sums = {}


def _all_finite(gradients: list[Tensor]) -> bool:
    values = [g.coalesce().values() if g.layout is torch.sparse_coo else g for g in gradients]
    if not values:
        return True
    norms = torch.stack([norm.to(values[0].device, torch.float32) for norm in torch._foreach_norm(values)])
    if bool(norms.isfinite().all()):
        return True
    return all(bool(value.isfinite().all()) for value in values)  # a norm may overflow where no element does
