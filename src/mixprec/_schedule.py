"""What counts steps counts applied ones: a step that was skipped moves no schedule, no average and no counter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from mixprec.errors import CheckpointError, InvalidValueError
from mixprec.records import StepReason, StepReport

__all__ = ["Average", "Schedule", "SkipAwareScheduler", "StepCounter", "Warmup", "check_schedule", "warmup"]

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


def warmup(after: Optimizer | LRScheduler, steps: int, start: float = 0.0) -> Warmup:
    """A scheduler that raises the learning rates linearly over `steps` steps and then goes on as `after` would.

        scheduler = warmup(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000), steps=100)

    Args:
        after: an optimizer, whose rates are held after the warm-up, or a scheduler that was just made, which then takes
            all its steps, shifted by `steps`.
        steps: step k of them, from 0, has (start + (1 − start)·(k+1)/steps) of the rates that `after` begins with.
        start: the share to begin from, 0 ≤ start < 1.

    Raises: InvalidValueError.
    """
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise InvalidValueError("steps", steps, "a whole number, 1 or more")
    if not 0.0 <= start < 1.0:
        raise InvalidValueError("start", start, "a share of the learning rate, 0 or more and below 1")
    if isinstance(after, Optimizer):
        return Warmup(after, None, steps, start)
    check_schedule(after)
    return Warmup(after.optimizer, after, steps, start)


class Warmup(LRScheduler):
    """What `warmup` makes. It asks `after` for nothing but `step`, and so composes with chained schedulers as well,
    which torch's `SequentialLR` does not.
    """

    def __init__(self, optimizer: Optimizer, after: LRScheduler | None, steps: int, start: float) -> None:
        # torch's constructor is left out: it takes a step, and patches the optimizer to warn about an order of calls
        self.optimizer = optimizer
        self.after = after
        self.steps = steps
        self.start = start
        self.last_epoch = 0
        self.base_lrs = [_copy(group["lr"]) for group in optimizer.param_groups]
        self._set()

    def get_lr(self) -> list[Any]:
        """The rates of the current step of the warm-up."""
        share = self.start + (1.0 - self.start) * min(1.0, (self.last_epoch + 1) / self.steps)
        return [rate * share for rate in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        """Advance by one; `epoch` is not accepted. Raises: InvalidValueError."""
        if epoch is not None:
            raise InvalidValueError("epoch", epoch, "None", "A warm-up advances one step at a time.")
        self.last_epoch += 1
        if self.last_epoch > self.steps and self.after is not None:
            self.after.step()
            self._last_lr = self.after.get_last_lr()
        else:
            self._set()

    def _set(self) -> None:
        self._last_lr = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, the rates that it leads to, and the state of `after`."""
        own = {name: getattr(self, name) for name in ("steps", "start", "last_epoch", "base_lrs", "_last_lr")}
        return {**own, "after": None if self.after is None else self.after.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore; as with torch's schedulers the optimizer's own state holds the current rates."""
        state = dict(state_dict)
        after = state.pop("after")
        if self.after is not None:
            self.after.load_state_dict(after)
        self.__dict__.update(state)


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


def _copy(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, Tensor) else rate


def _entry(state: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = state.get(name)
    if not isinstance(value, kind):
        raise CheckpointError(name, f"{name} is {value!r} in the checkpoint; accepted is a {kind.__name__}.")
    return value
