"""What counts steps counts applied ones: a step that was skipped moves no schedule, no average and no counter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau, SequentialLR

from mixprec.errors import CheckpointError, InvalidValueError
from mixprec.records import StepReason, StepReport

__all__ = ["Average", "Schedule", "SkipAwareScheduler", "StepCounter", "check_schedule", "warmup"]

T = TypeVar("T")


class Schedule(Protocol):
    """What can be stepped once per applied step: any torch scheduler but `ReduceLROnPlateau`, which wants a metric."""

    def step(self) -> None:
        """Advance by one."""

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore."""


class SkipAwareScheduler:
    """Steps `scheduler` only when the report says that the optimizer's step was applied.

        scheduler = SkipAwareScheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000))
        scheduler.step(scaler.report(optimizer))

    Everything else (`get_last_lr`, `state_dict`, …) is the wrapped scheduler's, so checkpoints are interchangeable.

    Raises: InvalidValueError for what cannot be stepped without an argument.

    **Cost**: one host sync per step to learn whether it was applied, on accelerators.
    """

    def __init__(self, scheduler: Schedule) -> None:
        check_schedule(scheduler)
        self.scheduler = scheduler

    def step(self, report: object) -> bool:
        """Advance if `report`, a `StepReport`, says applied; returns whether it did. Raises: InvalidValueError."""
        if not isinstance(report, StepReport):
            advice = "Pass what precision.step() returned, or scaler.report(optimizer)."
            raise InvalidValueError("report", report, "a StepReport", advice)
        if report.applied:
            self.scheduler.step()
        return report.applied

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self.scheduler, name)


def check_schedule(scheduler: object) -> None:
    """Raises `InvalidValueError` for what cannot be advanced by `scheduler.step()` after each applied step."""
    if isinstance(scheduler, ReduceLROnPlateau):
        raise InvalidValueError(
            "scheduler",
            "ReduceLROnPlateau",
            "a scheduler that steps without a metric",
            "Step it yourself after each validation: scheduler.step(metric).",
        )
    if isinstance(scheduler, SkipAwareScheduler):
        advice = "Pass the scheduler that it wraps: it is stepped when a step was applied anyway."
        raise InvalidValueError("scheduler", "SkipAwareScheduler", "a scheduler that steps without an argument", advice)
    if not callable(getattr(scheduler, "step", None)) or isinstance(scheduler, Optimizer):
        accepted = "an object with step(), such as a torch scheduler"
        raise InvalidValueError("scheduler", type(scheduler).__name__, accepted)


def warmup(after: Optimizer | LRScheduler, steps: int, start: float = 0.0) -> LRScheduler:
    """A scheduler that raises the learning rate linearly over `steps` steps and then goes on as `after` would.

    Args:
        after: an optimizer, whose rate is held after the warm-up, or a scheduler that was just made, whose first step
            is taken when the warm-up ends.
        steps: the rate reaches its full value at this step; step k of them has (start + (1 − start)·(k+1)/steps) of it.
        start: the share to begin from, 0 ≤ start < 1.

    Raises: InvalidValueError.
    """
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise InvalidValueError("steps", steps, "a whole number, 1 or more")
    if not 0.0 <= start < 1.0:
        raise InvalidValueError("start", start, "a share of the learning rate, 0 or more and below 1")

    def factor(step: int) -> float:
        return start + (1.0 - start) * min(1.0, (step + 1) / steps)

    if isinstance(after, Optimizer):
        return LambdaLR(after, factor)
    check_schedule(after)
    rise = LambdaLR(after.optimizer, factor)
    return SequentialLR(after.optimizer, [rise, after], milestones=[steps])


@dataclass
class StepCounter:
    """How many optimizer steps were applied and how many skipped; micro-batches inside a window count as neither."""

    applied: int = 0
    skipped: int = 0

    def update(self, report: StepReport) -> None:
        """Count the step of `report`. **Cost**: one host sync per report, shared by all that read it."""
        self.applied += report.applied
        self.skipped += report.reason is StepReason.FOUND_INF

    def state_dict(self) -> dict[str, int]:
        """Both counts."""
        return {"applied": self.applied, "skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore both counts. Raises: CheckpointError."""
        self.applied, self.skipped = (_entry(state, name, int) for name in ("applied", "skipped"))


class Average:
    """The exponential moving average of weights, in float32, over applied steps only.

    In 16 bits an average with a decay above 0.99 stands still: its updates are below half a unit in the last place.
    Pass the masters (`optimizer.param_groups`) rather than 16-bit weights where there are masters.

    Args:
        parameters: floating-point tensors to average, read at each update.
        decay: the share of the average that stays, 0 ≤ decay < 1.

    **Cost**: 4 bytes per parameter kept, R 8 W 4 per applied step, one host sync per report.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float) -> None:
        if not 0.0 <= decay < 1.0:
            raise InvalidValueError("decay", decay, "a share, 0 or more and below 1")
        self.decay = decay
        self._parameters = list(parameters)
        self.values = [p.detach().to(torch.float32, copy=True) for p in self._parameters]

    @torch.no_grad()
    def update(self, report: StepReport) -> bool:
        """Move toward the weights if `report.applied`; returns whether it did."""
        if report.applied:
            now = [p.detach().float() for p in self._parameters]
            torch._foreach_lerp_(self.values, now, 1.0 - self.decay)
        return report.applied

    @torch.no_grad()
    def copy_to(self, parameters: Iterable[Tensor]) -> None:
        """Write the average into `parameters`, rounded to their dtype."""
        for parameter, value in zip(parameters, self.values, strict=True):
            parameter.copy_(value)

    def state_dict(self) -> dict[str, Any]:
        """The decay and the averages; references, as in a module's state."""
        return {"decay": self.decay, "values": list(self.values)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore exactly. Raises: CheckpointError, before anything is written."""
        decay, values = _entry(state, "decay", float), _entry(state, "values", list)
        shapes = [tuple(v.shape) for v in self.values]
        if [tuple(v.shape) for v in values] != shapes:
            raise CheckpointError("values", f"values in the checkpoint do not have the shapes {shapes}.")
        self.decay = decay
        for mine, saved in zip(self.values, values, strict=True):
            mine.copy_(saved)


def _entry(state: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = state.get(name)
    if not isinstance(value, kind):
        raise CheckpointError(name, f"{name} is {value!r} in the checkpoint; accepted is a {kind.__name__}.")
    return value
