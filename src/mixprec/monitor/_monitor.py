"""A run is watched without a change to its loop, or a wait for it: what a step left is read once it has arrived."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from typing_extensions import Self

from mixprec._lowbit import LowBit
from mixprec._taps import Listening, listen
from mixprec.errors import InvalidValueError
from mixprec.monitor._assemble import Assembler
from mixprec.monitor._facts import run_facts
from mixprec.monitor._level import LIGHT, Level, level_named
from mixprec.monitor._modules import ModuleWatch
from mixprec.monitor._names import names_in_model, names_in_optimizer
from mixprec.monitor._outlets import Outlets
from mixprec.monitor._record import StepRecord
from mixprec.monitor._silence import silent
from mixprec.monitor._steps import ClosedStep, StepWatch
from mixprec.monitor._weights import BufferWatch
from mixprec.monitor.alerts import Alerts, Rule
from mixprec.monitor.sinks import Sink
from mixprec.monitor.sinks.jsonl import JsonlSink, last_step
from mixprec.records import Finding

if TYPE_CHECKING:
    from mixprec.monitor.incident import IncidentStore, IncidentWatch

__all__ = ["Monitor"]

KEPT = 1000
IN_FLIGHT = 64
"""Steps that may be on their way to the host before the oldest is waited for."""

TOGETHER = 0.2
"""Seconds within which steps are recorded together: code that runs many times in a row runs from the caches."""

logger = logging.getLogger("mixprec.monitor")


class _FrontDoor(Protocol):
    """What a `Precision` tells of itself."""

    @property
    def model(self) -> nn.Module | None: ...

    @property
    def optimizers(self) -> Sequence[Optimizer]: ...


class Monitor:
    """Watches a training run: records every step, warns before it breaks.

        with Monitor(model, optimizer, folder="runs/first"):
            ...  # the loop as it is

    Scalers (`torch.amp.GradScaler`, its subclasses, mixprec's), clipping and backward are heard where the script calls
    them. Steps are recorded when their numbers have reached the host, those of 0.2 s together; at once where one failed
    or was looked at in detail. What is wrong is logged (logger "mixprec.monitor"), once.

    Args:
        model: the model; several as a sequence or a mapping by name; None watches optimizers only. Wrap it with DDP or
            compile it before or after; a compiled one must not have run yet.
        optimizers: those whose steps count. A scaler may stand among them.
        scaler: may be named, and need not: whatever scaler an optimizer steps with is heard.
        precision: a `Precision`, in place of model and optimizers.
        folder: where to write `rankN.jsonl`; a run that is there is continued. None keeps the latest 1000 records in
            `records`.
        level: "light", "standard" or "deep"; what differs is how often modules and samples are looked at.
        sinks: where else records go, such as `sinks.tensorboard.TensorBoardSink("runs/first")`; on rank 0 only.
        on_alert: called with each `Finding`, on every rank.
        rules: alerts to watch for; None is all of them.
        rank: this process's rank where torch.distributed does not know it.
        incidents: keep in `folder` what is needed to replay a failing step (`mixprec replay`), and one where gradients
            underflow; or an `IncidentStore`.

    Raises: InvalidValueError, UnknownNameError for arguments.

    **Cost**: docs/monitor.md has the measured ratios. No host sync on accelerators: one asynchronous copy per step.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module] | dict[str, nn.Module] | None = None,
        *optimizers: Optimizer | GradScaler,
        scaler: GradScaler | None = None,
        precision: _FrontDoor | None = None,
        folder: str | Path | None = None,
        level: str | Level = LIGHT,
        sinks: Iterable[Sink] = (),
        on_alert: Callable[[Finding], Any] | None = None,
        rules: Iterable[Rule] | None = None,
        rank: int | None = None,
        incidents: bool | IncidentStore = False,
    ) -> None:
        self.level = level_named(level)
        if silent():
            folder, sinks, incidents = None, (), False
        self.folder = None if folder is None else Path(folder)
        self.records: deque[StepRecord] = deque(maxlen=KEPT)
        self.findings: list[Finding] = []
        self._outlets = Outlets([*([JsonlSink(self.folder)] if self.folder is not None else []), *sinks])
        self._alerts, self._on_alert, self._rank = Alerts(rules, self._failed), on_alert, rank
        self._assembler = Assembler()
        self._pending: deque[ClosedStep] = deque()
        self._optimizers: list[weakref.ref[Optimizer]] = []  # a training that is over may let go of its own
        self._offset: int | None = None
        self._said: set[str] = set()
        self._process = os.getpid()
        self._modules, self._buffers = ModuleWatch(self.level.elements), BufferWatch()
        self._steps = StepWatch(self.level, self._modules, self._buffers, self._closed, self._failed)
        for name, module in _named(precision.model if model is None and precision is not None else model):
            self.watch(module, name)
        if scaler is not None and not isinstance(scaler, GradScaler):
            raise InvalidValueError("scaler", type(scaler).__name__, "a torch.amp.GradScaler or mixprec's, or None")
        given = [optimizer for optimizer in optimizers if not isinstance(optimizer, GradScaler)]
        for optimizer in given or (precision.optimizers if precision is not None else ()):
            self.watch_optimizer(optimizer)
        self._incidents = self._kept(incidents)
        self._listening = listen(self._steps)
        self._at_exit = _closing(weakref.ref(self))
        atexit.register(self._at_exit)

    def _kept(self, incidents: bool | IncidentStore) -> tuple[IncidentWatch, Listening] | None:
        if incidents is False:
            return None
        from mixprec.monitor.incident import IncidentStore, IncidentWatch  # needs safetensors, which watching does not

        if incidents is True and self.folder is None:
            raise InvalidValueError("incidents", True, "an IncidentStore where there is no folder", "Or give a folder.")
        store = IncidentStore(self.folder / "incidents") if incidents is True and self.folder else incidents
        assert isinstance(store, IncidentStore)
        watch = IncidentWatch(store)
        return watch, listen(watch)

    # what is watched

    def watch(self, model: nn.Module, name: str = "") -> None:
        """Watches `model` too, its modules under paths that begin with `name`.

        Raises: InvalidValueError unless it is a module.
        """
        if not isinstance(model, nn.Module):
            raise InvalidValueError("model", type(model).__name__, "a torch.nn.Module, several of them, or None")
        self._modules.attach(model, name)
        self._buffers.attach(model, name)
        self._steps.name(names_in_model(model, name))

    def watch_optimizer(self, optimizer: Optimizer) -> None:
        """Counts the steps of `optimizer` too; of what it wraps, where it is a wrapper such as Accelerate's.

        Raises: InvalidValueError unless it is an optimizer.
        """
        if not isinstance(optimizer, Optimizer):
            raise InvalidValueError("optimizer", type(optimizer).__name__, "a torch.optim.Optimizer")
        optimizer = _unwrapped(optimizer)
        if any(reference() is optimizer for reference in self._optimizers):
            return
        name = f"optimizer{len(self._optimizers)}"
        self._optimizers.append(weakref.ref(optimizer))
        self._steps.add(optimizer, name, names_in_optimizer(optimizer, name))

    # steps

    def _closed(self, step: ClosedStep) -> None:
        if os.getpid() != self._process:
            return  # a forked child has the hooks but is not the run
        self._pending.append(step)
        full = len(self._pending) > IN_FLIGHT
        if full or step.looked or _failed(step) or step.time - self._pending[0].time >= TOGETHER:
            while self._pending and (_landed(self._pending[0]) or len(self._pending) > IN_FLIGHT):
                self._deliver(self._pending.popleft())

    def _deliver(self, step: ClosedStep) -> None:
        try:
            record = self._record(step)
        except Exception as error:  # whatever goes wrong here is ours; the run must not notice
            self._failed("record", error)
            return
        self.records.append(record)
        self._outlets.step(record)
        for finding in self._alerts.look(record):
            self._say(finding, record.step)
        if record.skipped:
            self._steps.look_now()

    def _record(self, step: ClosedStep) -> StepRecord:
        if self._offset is None:
            self._begin()
        found = {} if step.flight is None else step.flight.read()
        record = self._assembler.record(step, found)
        return record if not self._offset else replace(record, step=record.step + self._offset)

    def _begin(self) -> None:
        optimizers = [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]
        facts = run_facts(self.level.name, optimizers, self._rank, 0)
        self._offset = 0 if self.folder is None else last_step(self.folder, facts.rank) + 1
        self._outlets.begin(replace(facts, first_step=self._offset))

    def _say(self, finding: Finding, step: int) -> None:
        self.findings.append(finding)
        self._outlets.finding(finding, step)
        if self._outlets.rank == 0:
            advice = "" if finding.fix is None else f" {finding.fix.text}"
            logger.warning("step %d: %s %s: %s%s", step, finding.code, finding.name, finding.message, advice)
        if self._incidents is not None:
            self._incidents[0].alerted(finding)
        if self._on_alert is not None:
            try:
                self._on_alert(finding)
            except Exception as error:  # the callback's own fault; said once
                self._failed("on_alert", error)

    def _failed(self, what: str, error: Exception) -> None:
        if what not in self._said:
            self._said.add(what)
            logger.warning("the monitor failed in %s and goes on without it: %s: %s", what, type(error).__name__, error)

    # the end

    def flush(self) -> None:
        """Records what is still on its way. **Cost**: waits for the accelerator."""
        while self._pending:
            self._deliver(self._pending.popleft())

    def close(self) -> None:
        """Records the last step, takes every hook out and closes the sinks; a second call does nothing."""
        if os.getpid() != self._process:
            return
        self._listening.remove()
        if self._incidents is not None:
            self._incidents[0].finish()
            self._incidents[1].remove()
        self._modules.remove()
        self.flush()
        self._outlets.close()
        atexit.unregister(self._at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _landed(step: ClosedStep) -> bool:
    return step.flight is None or step.flight.landed


def _failed(step: ClosedStep) -> bool:
    return step.flight is not None and step.flight.failed


def _unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer whose `step` is torch's own: PyTorch's hooks, and a scaler's calls, tell of that one."""
    inner = getattr(optimizer, "optimizer", None)
    if not isinstance(inner, Optimizer) or inner is optimizer or isinstance(optimizer, LowBit):
        return optimizer
    return _unwrapped(inner)


def _closing(reference: weakref.ref[Monitor]) -> Callable[[], None]:
    def close() -> None:
        monitor = reference()
        if monitor is not None:
            monitor.close()

    return close


def _named(model: Any) -> Iterable[tuple[str, nn.Module]]:
    if model is None:
        return ()
    if isinstance(model, nn.Module):
        return (("", model),)
    if isinstance(model, dict):
        return model.items()
    if isinstance(model, (list, tuple)):
        return ((str(number), module) for number, module in enumerate(model))
    return (("", model),)
