"""A step is applied exactly when every unscaled gradient is finite, and the scale stays inside its bounds."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState

from mixprec.errors import InvalidValueError
from mixprec.records import StepReport, StepValues


def _fetch(values: StepValues[Any]) -> StepValues[float]:
    def host(value: Any) -> Any:
        return None if value is None else float(value)

    return StepValues(*(host(getattr(values, name)) for name in StepValues.__dataclass_fields__))


class GradScaler(torch.amp.GradScaler):
    """Drop-in for `torch.amp.GradScaler` with bounds, clipping inside `step`, and a report of every step."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        min_scale: float = 1.0,
        max_scale: float = 2.0**24,
        floor_patience: int = 100,
        rules: Any = None,
        guards: Any = None,
    ) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._min_scale = min_scale
        self._max_scale = max_scale
        self._floor_patience = floor_patience
        self._reports: weakref.WeakKeyDictionary[torch.optim.Optimizer, StepReport] = weakref.WeakKeyDictionary()

    def step(
        self, optimizer: torch.optim.Optimizer, *args: Any, max_norm: float | None = None, **kwargs: Any
    ) -> float | None:
        """As torch's `step`; `max_norm` clips the unscaled gradients to this global 2-norm first."""
        norm = coefficient = None
        if max_norm is not None:
            if self._enabled and self._per_optimizer_states[id(optimizer)]["stage"] is OptState.READY:
                self.unscale_(optimizer)
            grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            if grads:
                norm = torch.nn.utils.get_total_norm(grads)
                coefficient = (max_norm / (norm + 1e-6)).clamp(max=1.0)
                torch._foreach_mul_(grads, coefficient)
        result = super().step(optimizer, *args, **kwargs)
        self._reports[optimizer] = self._report(optimizer, norm, coefficient)
        return result

    def _report(self, optimizer: torch.optim.Optimizer, norm: Tensor | None, coefficient: Tensor | None) -> StepReport:
        found: Any = torch.zeros(())
        scale: Any = torch.ones(())
        if self._enabled:
            found = sum(self._found_inf_per_device(optimizer).values(), found)
            scale = self._scale.clone()  # type: ignore[union-attr] # step has checked it
        return StepReport(StepValues(found, scale, None, norm, coefficient), _fetch)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """As torch's `update`, within the bounds."""
        super().update(new_scale)
        if self._enabled:
            self._scale.clamp_(self._min_scale, self._max_scale)  # type: ignore[union-attr] # update has checked it

    def report(self, optimizer: torch.optim.Optimizer) -> StepReport:
        """The outcome of this optimizer's last step."""
        if optimizer not in self._reports:
            raise InvalidValueError("optimizer", type(optimizer).__name__, "an optimizer that this scaler has stepped")
        return self._reports[optimizer]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_reports"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._reports = weakref.WeakKeyDictionary()
