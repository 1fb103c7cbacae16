"""A step is everything between two attempts of an optimizer; it closes when its outcome is settled, applied or not.

With a loss scaler that is `update`; without one, when every optimizer has stepped, or one of them begins again. What
is heard is only noted: tensors are kept under keys and read later, together.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mixprec._scaler import GradScaler
from mixprec._taps import Listener
from mixprec.errors import InvalidValueError
from mixprec.monitor._gradients import GradientsRead, owned, read_gradients
from mixprec.monitor._level import Level
from mixprec.monitor._memory import memory
from mixprec.monitor._modules import NOTHING, ModuleWatch, Traces
from mixprec.monitor._numbers import Flight, Numbers
from mixprec.monitor._weights import BufferWatch, WeightsRead, WeightsWatch, compensates
from mixprec.records import StepReport

__all__ = ["ClosedStep", "StepWatch"]

LATELY = 20
"""Steps after which an optimizer that has not stepped is no longer waited for; its training is over."""


@dataclass
class ClosedStep:
    """What the host knows of a step when it ends; the numbers are in flight.

    `looked`: modules and samples were looked at. `scaling`: a loss scaler took part. `stepped`: optimizers whose `step`
    ran. `lrs`: None where it is a tensor (in the numbers). `clips`: the limit
    of each norm that clipping returned, and whether the gradients were still scaled.
    `reported`: mixprec's scaler knew the norm.
    """

    index: int
    looked: bool = False
    time: float = 0.0
    seconds: float | None = None
    scaling: bool = False
    attempted: list[str] = field(default_factory=list)
    stepped: list[str] = field(default_factory=list)
    lrs: list[float | None] = field(default_factory=list)
    clips: list[tuple[float, bool]] = field(default_factory=list)
    reported: bool = False
    gradients: list[GradientsRead] = field(default_factory=list)
    weights: list[WeightsRead] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    traces: Traces = NOTHING
    memory: int | None = None
    flight: Flight | None = None


class StepWatch(Listener):
    """Hears what happens to `optimizers` (more may be added), and hands each closed step to `closed`."""

    def __init__(
        self,
        level: Level,
        modules: ModuleWatch,
        buffers: BufferWatch,
        closed: Callable[[ClosedStep], None],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._level, self._modules, self._buffers = level, modules, buffers
        self._closed, self._failed = closed, failed
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._names_of: dict[int, str] = {}
        self._last_attempt: dict[str, int] = {}
        self._reports: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        self._scaler: Any = None
        self._norm_comes = False
        self._read: set[int] = set()
        self._losses: dict[int, Tensor] = {}
        self._sampling: dict[int, WeightsWatch] = {}
        self.index = 0
        self._ended = time.perf_counter()
        self._open()

    # what is watched

    def add(self, optimizer: Optimizer, name: str, parameters: dict[int, str]) -> None:
        """Watches `optimizer` too; `parameters` are called so where no model names them."""
        self._optimizers.add(optimizer)
        self._names_of[id(optimizer)] = name
        self._names = {**parameters, **self._names}

    def name(self, names: dict[int, str]) -> None:
        """Adds names of parameters, by id."""
        self._names.update(names)

    def look_now(self) -> None:
        """The step that has just been opened is looked at in detail, whatever its number."""
        self._step.looked = True
        self._modules.look(True)

    # the open step

    def _open(self) -> None:
        self._step = ClosedStep(self.index)
        self._numbers = Numbers()
        self._read.clear()
        self._unscaled = False
        self._losses.clear()
        self._sampling.clear()
        looking = self._level.looks_at(self.index)
        self._step.looked = looking
        self._modules.look(looking, self.index % self._level.logits == 0)

    def _close(self) -> None:
        step, now = self._step, time.perf_counter()
        step.time, step.seconds = time.time(), now - self._ended
        self._ended = now
        step.traces = self._modules.collect(self._numbers)
        if self._modules.looking:
            step.buffers = self._buffers.look(self._numbers)
            step.memory = memory()
        step.flight = self._numbers.leave()
        self.index += 1
        self._norm_comes = bool(step.clips) or step.reported
        self._open()
        self._closed(step)

    def _begin(self, optimizer: Optimizer, done: Sequence[str]) -> bool:
        """Whether `optimizer` is watched; closes the open step where it is among the `done` already."""
        name = self._names_of.get(id(optimizer))
        if name is not None and name in done:
            self._close()
        return name is not None

    def _attempt(self, optimizer: Optimizer) -> None:
        name = self._names_of[id(optimizer)]
        if name in self._step.attempted:
            return
        self._step.attempted.append(name)
        self._last_attempt[name] = self.index
        lr = optimizer.param_groups[0].get("lr")
        self._step.lrs.append(float(lr) if isinstance(lr, (int, float)) else None)
        if isinstance(lr, Tensor):
            self._numbers.add(("lr", len(self._step.lrs) - 1), lr)

    def _read_gradients(self, optimizer: Optimizer, *, scaled: bool) -> None:
        looking = self._modules.looking
        norms = looking or not self._norm_comes
        if id(optimizer) in self._read or not norms:
            return
        params = owned(optimizer)
        if not params:
            return
        self._read.add(id(optimizer))
        name = self._names_of[id(optimizer)]
        self._step.gradients.append(
            read_gradients(
                name,
                params,
                self._names,
                self._numbers,
                scaled=scaled,
                elements=self._level.elements if looking else 0,
                multiply=None if scaled else self._current_scale(),
            )
        )

    def _current_scale(self) -> Tensor | None:
        scale = getattr(self._scaler, "_scale", None)
        return scale if self._step.scaling and isinstance(scale, Tensor) else None

    # loss

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """The loss before it is scaled."""
        if not scaler.is_enabled():
            return
        self._scaler, self._step.scaling = scaler, True
        if isinstance(outputs, Tensor) and isinstance(result, Tensor):
            self._losses[id(result)] = outputs.detach()
            self._numbers_keep(result)

    def _numbers_keep(self, result: Tensor) -> None:
        """`result` is kept until the step closes, so that its id stays its own."""
        self._losses[-id(result)] = result.detach()

    def before_backward(self, outputs: tuple[Tensor, ...]) -> None:
        """What gradients are taken of; a backward inside another (a checkpoint's) is part of that one."""
        if torch._C._current_autograd_node() is not None:
            return
        for output in outputs:
            known = self._losses.get(id(output))
            if known is not None:
                self._numbers.add("loss", known.sum() if known.dim() else known)
            else:
                loss = output.detach()
                key = "scaled_loss" if self._step.scaling else "loss"
                self._numbers.add(key, loss.sum() if loss.dim() else loss)

    # scaler and optimizer

    def before_unscale(self, scaler: Any, optimizer: Optimizer, by_step: bool) -> None:
        """Gradients are whole and still scaled."""
        if scaler.is_enabled() and self._watched(optimizer):
            self._note_scaler(scaler)
            self._unscaled = True
            self._read_gradients(optimizer, scaled=True)

    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """As before `unscale_`, where that was not called."""
        if not scaler.is_enabled() or not self._begin(optimizer, self._step.attempted):
            return
        self._note_scaler(scaler)
        self._attempt(optimizer)
        self._read_gradients(optimizer, scaled=True)

    def _watched(self, optimizer: Optimizer) -> bool:
        return id(optimizer) in self._names_of

    def _note_scaler(self, scaler: Any) -> None:
        self._scaler, self._step.scaling = scaler, True

    def clipped(self, parameters: tuple[Tensor, ...], limit: float, by: str, total_norm: Tensor | None) -> None:
        """The norm before clipping, for nothing."""
        if isinstance(total_norm, Tensor) and by == "norm":
            self._numbers.add("clip_norm", _whole(total_norm))
            self._step.clips.append((float(limit), self._step.scaling and not self._unscaled))

    def before_step(self, optimizer: Optimizer) -> None:
        """The optimizer itself begins."""
        if not self._begin(optimizer, self._step.stepped):
            return
        self._attempt(optimizer)
        self._read_gradients(optimizer, scaled=getattr(optimizer, "grad_scale", None) is not None)
        if self._modules.looking:
            params = owned(optimizer)
            if params:
                self._sampling[id(optimizer)] = WeightsWatch(
                    params, self._names, self._level.elements, compensated=compensates(optimizer)
                )

    def stepped(self, optimizer: Optimizer) -> None:
        """The optimizer returned; under a fused one and a scaler it may have skipped all the same."""
        name = self._names_of.get(id(optimizer))
        if name is None:
            return
        self._read_gradients(optimizer, scaled=False)  # of a closure, which computes them inside the step
        self._step.stepped.append(name)
        watch = self._sampling.pop(id(optimizer), None)
        if watch is not None:
            self._step.weights.append(watch.after(self._numbers))
        if not self._step.scaling and self._active() <= set(self._step.stepped):
            self._close()

    def _active(self) -> set[str]:
        """Optimizers that are expected to step: those alive that stepped lately, or never yet."""
        alive = {self._names_of[id(optimizer)] for optimizer in self._optimizers}
        return {name for name in alive if self.index - self._last_attempt.get(name, self.index) < LATELY}

    def before_update(self, scaler: Any, new_scale: Any) -> None:
        """Everything that was found is there, and the scale still is that of the gradients."""
        if isinstance(scaler, GradScaler) and scaler is self._scaler:
            self._note_reports(scaler)
        if self._ours(scaler):
            for flag in _flags(scaler):
                self._numbers.add("found_inf", flag)
            self._note_scale("scale", scaler)

    def updated(self, scaler: Any, new_scale: Any) -> None:
        """The outcome is settled."""
        if self._ours(scaler):
            self._note_scale("scale_after", scaler)
            self._close()

    def _ours(self, scaler: Any) -> bool:
        return scaler is self._scaler and scaler.is_enabled() and bool(self._step.attempted)

    def _note_scale(self, key: str, scaler: Any) -> None:
        scale = getattr(scaler, "_scale", None)
        if isinstance(scale, Tensor):  # the scaler writes to it in place: read now, or copied
            self._numbers.add(key, scale if scale.is_cpu else scale.detach().clone())

    def _note_reports(self, scaler: GradScaler) -> None:
        """Mixprec's scaler tells of steps that it took for several optimizers together, and of the norm."""
        for optimizer in self._optimizers:
            report = _last_report(scaler, optimizer)
            if report is None or self._reports.get(id(optimizer)) is report:
                continue
            self._reports[id(optimizer)] = report
            self._attempt(optimizer)
            self._read_gradients(optimizer, scaled=True)
            self._note_clipping(report)

    def _note_clipping(self, report: StepReport) -> None:
        values = report.on_device
        if values.grad_norm is not None and values.clip_coefficient is not None:
            self._numbers.add("report_norm", values.grad_norm)
            self._numbers.add("report_coefficient", values.clip_coefficient)
            self._step.reported = True

    def failed(self, event: str, error: Exception) -> None:
        """Told to the monitor, which says it once."""
        self._failed(event, error)


def _flags(scaler: Any) -> Sequence[Tensor]:
    states = getattr(scaler, "_per_optimizer_states", {}).values()
    return [flag for state in states for flag in state.get("found_inf_per_device", {}).values()]


def _last_report(scaler: GradScaler, optimizer: Optimizer) -> StepReport | None:
    try:
        return scaler.report(optimizer)
    except InvalidValueError:
        return None


def _whole(norm: Tensor) -> Tensor:
    """A norm of DTensors, as this rank has it."""
    return getattr(norm, "_local_tensor", norm)
