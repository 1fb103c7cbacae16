"""An AdamW over masters can be stepped by its 16-bit gradients: they are read once, and no float32 copy of them exists.

A scaler reads the gradients of an optimizer's parameters and tells it what to divide by and whether to skip. A stand-in
is that optimizer to the scaler, but its parameters are the 16-bit weights. The state, the groups and the hooks are the
optimizer's own, so nothing else changes: schedulers, checkpoints, and what has no master and is stepped by PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from mixprec._kernels._choice import Kernels
from mixprec._kernels._dense import alike
from mixprec._kernels._part import Held, Hyper, MasterUpdate, Part
from mixprec._kernels._pieces import Pieces
from mixprec._master import MasterWeights
from mixprec.errors import InvalidValueError

__all__ = ["MasterSteps"]


class MasterSteps:
    """The stand-ins of `optimizers`, whose masters `masters` holds, in order.

    Raises: InvalidValueError for an optimizer that is not `torch.optim.AdamW(fused=True)`; MissingExtraError.
    """

    def __init__(self, kernels: Kernels, optimizers: Sequence[Optimizer], masters: MasterWeights) -> None:
        self._masters = masters
        weights = dict(zip(masters.masters, masters.weights, strict=True))
        self._stand_ins = [_StandIn(_checked(optimizer, kernels), weights, kernels) for optimizer in optimizers]

    @property
    def optimizers(self) -> list[Optimizer]:
        """What to hand to a scaler in place of the optimizers."""
        return [cast(Optimizer, stand_in) for stand_in in self._stand_ins]

    def ready(self) -> bool:
        """Whether this step can be taken on the 16-bit gradients; to be asked before every step that is.

        It cannot where sums over micro-batches lie in the masters' gradients, or where tensors are sparse, distributed
        or lie differently. Weights that were set from outside are followed first.
        """
        self._masters.follow_()
        return all(stand_in.ready() for stand_in in self._stand_ins)

    def stepped_(self) -> None:
        """To be called after a step of the stand-ins: the weights are their masters' roundings, as they were made."""
        self._masters.published_()


class _StandIn:
    """What a scaler needs of an optimizer. `grad_scale` and `found_inf` are set by it around `step`."""

    _step_supports_amp_scaling = True

    def __init__(self, optimizer: AdamW, weights: dict[Tensor, Tensor], kernels: Kernels) -> None:
        self.optimizer = optimizer
        held = [[(weights[p], p) for p in group["params"] if p in weights] for group in optimizer.param_groups]
        self._groups = [_Group(optimizer, index, pairs) for index, pairs in enumerate(held)]
        self.param_groups = [
            {**group, "params": [weights.get(param, param) for param in group["params"]]}
            for group in optimizer.param_groups
        ]
        self._update = _update(kernels)
        self._parts: list[Part] = []

    @property
    def state(self) -> Any:
        return self.optimizer.state

    def ready(self) -> bool:
        parts = [group.part() for group in self._groups]
        self._parts = [part for part in parts if part is not None and part.gradients]
        return None not in parts

    @torch.no_grad()
    def step(self) -> Any:
        grad_scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if self._parts:
            self._update(self._parts, grad_scale, found_inf)
        optimizer: Any = self.optimizer
        optimizer.grad_scale, optimizer.found_inf = grad_scale, found_inf
        try:
            return optimizer.step()  # hooks, and the parameters without a master: the others have no gradient
        finally:
            del optimizer.grad_scale, optimizer.found_inf


class _Group:
    """The weights and masters of a parameter group. What was found right stays so while the tensors stay in place."""

    def __init__(self, optimizer: AdamW, index: int, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self._optimizer = optimizer
        self._index = index
        self._pairs = pairs
        self._held = Held([], [], [], [], [])
        self._places: list[int] = []

    def part(self) -> Part | None:
        """The group's part in the step, without gradients if there are none; None if it cannot be taken this way.

        **Cost**: about 2 µs of Python per parameter.
        """
        group = self._optimizer.param_groups[self._index]
        if not _is_plain(group) or any(master.grad is not None for _, master in self._pairs):
            return None
        here = [(weight, master, grad) for weight, master in self._pairs if (grad := weight.grad) is not None]
        if not all(type(grad) is Tensor and grad.layout is torch.strided for _, _, grad in here):
            return None
        held = self._kept([weight for weight, _, _ in here], [master for _, master, _ in here])
        if held is None:
            return None
        return Part(_hyper(group), [_laid(gradient, weight) for weight, _, gradient in here], held)

    def _kept(self, weights: list[Tensor], masters: list[Tensor]) -> Held | None:
        states = [self._state_of(master) for master in masters]
        exp_avgs, exp_avg_sqs, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        lists = (weights, masters, exp_avgs, exp_avg_sqs, steps)
        places = [tensor.data_ptr() for each in lists for tensor in each]
        if places != self._places:
            if not all(_fit(*tensors) for tensors in zip(*lists, strict=True)):
                return None
            self._held, self._places = Held(*lists), places
        return self._held

    def _state_of(self, master: Tensor) -> dict[str, Tensor]:
        """As torch's fused AdamW begins it."""
        state: dict[str, Tensor] = self._optimizer.state[master]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=master.device)
            state["exp_avg"] = torch.zeros_like(master)
            state["exp_avg_sq"] = torch.zeros_like(master)
        return state


def _fit(weight: Tensor, master: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: Tensor) -> bool:
    plain = type(weight.data) is Tensor and {exp_avg.dtype, exp_avg_sq.dtype, step.dtype} == {torch.float32}
    return plain and alike(weight, master, exp_avg, exp_avg_sq) and step.device == master.device


def _laid(gradient: Tensor, weight: Tensor) -> Tensor:
    """`gradient`, laid out as `weight` is."""
    if gradient.is_contiguous() and weight.is_contiguous():
        return gradient
    return gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)


def _update(kernels: Kernels) -> MasterUpdate:
    if kernels is Kernels.PIECES:
        return Pieces()
    from mixprec._kernels._triton._adamw import update_  # needs an extra

    return update_


def _hyper(group: dict[str, Any]) -> Hyper:
    beta1, beta2 = group["betas"]
    return Hyper(group["lr"], beta1, beta2, group["eps"], group["weight_decay"])


def _is_plain(group: dict[str, Any]) -> bool:
    flags = any(group[name] for name in ("amsgrad", "maximize", "differentiable", "capturable"))
    tensors = any(isinstance(number, Tensor) for number in (group["lr"], *group["betas"]))
    return bool(group["fused"]) and not flags and not tensors


def _checked(optimizer: Optimizer, kernels: Kernels) -> AdamW:
    accepted = f"torch.optim.AdamW(fused=True) where kernels={kernels.value!r}"
    if type(optimizer) is not AdamW:
        raise InvalidValueError("optimizer", type(optimizer).__name__, accepted, _ELSE)
    for group in optimizer.param_groups:
        if not _is_plain(group):
            raise InvalidValueError("optimizer", f"AdamW({_said(group)})", f"{accepted}, with {_PLAIN}", _ELSE)
    return optimizer


_PLAIN = "amsgrad, maximize, differentiable and capturable off and a number for lr"
_ELSE = "Any other optimizer is stepped by kernels='foreach'."


def _said(group: dict[str, Any]) -> str:
    """What was set, as it was written."""
    names = ("lr", "fused", "amsgrad", "maximize", "differentiable", "capturable")
    return ", ".join(f"{name}={group[name]!r}" for name in names)
