"""A monitor finds what there is to watch in a script that knows nothing of it: optimizers as they are built, and the
models whose forward computes with their parameters.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from mixprec._script import child
from mixprec._taps import Listener, Listening, listen
from mixprec.monitor._monitor import Monitor
from mixprec.monitor.incident import IncidentWatch, watch
from mixprec.monitor.sinks import Sink
from mixprec.monitor.sinks.live import LiveSink

__all__ = ["Finder", "attach"]


class Finder(Listener):
    """Makes `monitor` watch optimizers when they are built, and models at their first forward in training.

    A model is the outermost module that computes while an optimizer exists; it need not hold all its parameters.
    """

    def __init__(self, make: Callable[[], Monitor]) -> None:
        self._make = make
        self.monitor: Monitor | None = None
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._parameters: set[int] = set()
        self.listening: Listening | None = None

    def optimizer_created(self, optimizer: Optimizer) -> None:
        """The first one starts the monitor."""
        if child.in_worker() or not hasattr(optimizer, "param_groups"):
            return
        if self.monitor is None:
            self.monitor = self._make()
        self.monitor.watch_optimizer(optimizer)
        self._parameters.update(id(p) for group in optimizer.param_groups for p in group["params"])

    def before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The outermost module, since what it contains is watched with it."""
        if self.monitor is None or module in self._models or not torch.is_grad_enabled():
            return
        own = [id(p) for p in module.parameters()]
        if not any(p in self._parameters for p in own):
            return
        name = type(module).__name__ if self._models else ""
        self._models.update(module.modules())
        self.monitor.watch(module, name)
        self._parameters.difference_update(own)
        if not self._parameters:
            self._stop()

    def finish(self) -> None:
        """The script ends."""
        if self.listening is not None:
            self.listening.remove()
        if self.monitor is not None:
            self.monitor.close()

    def _stop(self) -> None:
        """Every parameter belongs to a model: module calls need not be heard any more."""
        if self.listening is not None:
            self.listening.remove()
            self.listening = listen(_Optimizers(self))


class _Optimizers(Listener):
    """Goes on hearing of new optimizers only."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    def optimizer_created(self, optimizer: Optimizer) -> None:
        self._finder.optimizer_created(optimizer)


def attach(options: Mapping[str, Any]) -> Callable[[], None]:
    """The entry of `mixprec run` in the script's process; what it returns is called at exit.

    Options: `folder`, `level`, `live`, and `incidents`, which keeps what is needed to replay a
    failing step, those of `steps`, and one where gradients underflow.
    """
    incidents = _kept(options) if options.get("incidents") else None

    def make() -> Monitor:
        sinks: list[Sink] = [LiveSink()] if options.get("live") else []
        return Monitor(
            folder=options["folder"],
            level=options.get("level", "standard"),
            sinks=sinks,
            on_alert=None if incidents is None else incidents.alerted,
        )

    finder = Finder(make)
    finder.listening = listen(finder)

    def finish() -> None:
        ends = (finder.finish,) if incidents is None else (incidents.close, finder.finish)
        for end in ends:
            with contextlib.suppress(Exception):  # the script's own exit is what counts
                end()

    return finish


def _kept(options: Mapping[str, Any]) -> IncidentWatch:
    """Starts to keep incidents beside the record."""
    return watch({"folder": str(Path(options["folder"], "incidents")), "steps": options.get("steps", ())})
