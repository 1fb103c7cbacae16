"""In the replayed script's own process: the run is brought to the incident's step, everything is put in place, exactly
that step runs, and the process ends before anything is changed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from mixprec._script import child
from mixprec._trace import Tracer
from mixprec.monitor._silence import silence
from mixprec.monitor.incident import Incident, RandomStates, checksum, load_incident
from mixprec.monitor.incident._window import Windows
from mixprec.monitor.replay._look import summed_up
from mixprec.monitor.replay._place import place_state, transplant
from mixprec.monitor.replay._precision import precision_override
from mixprec.monitor.replay._result import traced_document

__all__ = ["enter"]

_WAIT = 20.0
"""Seconds that a rank waits for the others before it ends, so that none loses its peers inside a collective."""


def enter(options: dict[str, Any]) -> Callable[[], None]:
    """The script's entry (see `mixprec._script`): starts to listen, and says at exit if the step was never reached."""
    silence()
    stack = contextlib.ExitStack()
    stack.enter_context(precision_override(options["precision"]))
    replaying = _Replaying(options)
    stack.enter_context(replaying.hearing(checks=True))

    def leave() -> None:
        try:
            replaying.finish()
        finally:
            replaying.stop_tracing()
            stack.close()
        replaying.not_reached()

    return leave


class _Replaying(Windows):
    """Counts the script's steps as they were counted when the incident was saved.

    `reach="jump"` takes the script's second step for the incident's (everything it depends on is put in place);
    `reach="run"` runs all steps up to it. `previous` traces the step before it too, weights as they come. `seek` ends
    after the first step that left a weight or buffer that is not finite. `step` replaces the incident's.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self._options = options
        self._incidents = [load_incident(folder) for folder in options["incidents"]]
        self._jump = options["reach"] == "jump"
        self._previous: bool = options["previous"]
        self._here = False
        self._differences: list[str] = []
        self._calls: list[Any] = []
        self._loaded: list[Any] = []
        self._written = False
        self._tracer: Tracer | None = Tracer(keep="all", exact=True) if options["trace"] else None
        self._since = 0
        self._scaler: Any = None
        self._last: tuple[tuple[Optimizer, ...], Any] = ((), None)
        self._traces = False
        initial = self._incident.random("initial")
        if initial is not None:
            initial.restore()
        if self._goal - self._previous <= 0:
            self._trace()

    @property
    def _incident(self) -> Incident:
        """The one that this rank saved, or the first."""
        rank = child.rank()
        return next((one for one in self._incidents if one.rank == rank), self._incidents[0])

    @property
    def _goal(self) -> int:
        """The step at which the run ends: the incident's, or an earlier one that is looked for."""
        step: int | None = self._options["step"]
        return self._incident.step if step is None else step

    def _weights_are_bad(self) -> bool:
        with self.looking():
            tensors = (t for root in self._roots for t in (*root.parameters(), *root.buffers()))
            return not all(bool(tensor.isfinite().all()) for tensor in tensors)

    # the way there

    def closed(self) -> None:
        """The next window may be the one."""
        step = self._goal
        if self._options["seek"] and self._weights_are_bad():
            self._write({"reached": True, "bad": self.step - 1})
            child.end_now()
        if self.step == step or (self._jump and step and not self._here):
            self._arrive(self._incident.random("before"))
        if self.step == step - self._previous or self._here:
            self._trace()

    def opened(self) -> None:
        """The first call of the step draws its random numbers as it did; a first step is put in place here."""
        if not self._here and self._goal == 0:
            self._arrive(None)
            self._since = self._tracer.ops if self._tracer is not None else 0
        states = self._incident.random("at_forward") if self._here and not self._previous else None
        if states is not None:
            states.restore()

    def _arrive(self, states: RandomStates | None) -> None:
        self._here = True
        self._calls, self._loaded = self._incident.calls(), self._incident.loaded()
        if self._previous:
            return
        optimizers, scaler = self._last if self._incident.step else ((), self._scaler)
        with self.looking():
            place_state(self._incident, list(self._roots), optimizers, scaler, self._options["scale"])
        if states is not None:
            states.restore()

    def scaler_created(self, scaler: Any) -> None:
        """The newest scaler is the one that a first step uses."""
        self._scaler = scaler

    def _trace(self) -> None:
        """Begins to trace between steps, where no region of the script's is open."""
        if self._tracer is not None and not self._traces:
            self._traces = True
            self._tracer.__enter__()

    def stop_tracing(self) -> None:
        """Takes the tracer out, if it is in."""
        if self._tracer is not None and self._traces:
            self._traces = False
            self._tracer.__exit__(None, None, None)

    def judged(self, kind: str | None) -> None:
        """The step is over where it is the one; where not, who stepped is remembered."""
        self._last = (self.moment.optimizers, self.moment.scaler)
        if self._here:
            self._end(kind)

    def looking(self) -> contextlib.AbstractContextManager[Any]:
        """What judges the step is not traced."""
        return contextlib.nullcontext() if self._tracer is None else self._tracer.paused()

    # what the step gets

    def batch_loaded(self, iterator: Any, batch: Any) -> None:
        """The saved batch takes the place of the loaded one."""
        number = len(self.moment.loaded)
        super().batch_loaded(iterator, batch)
        if self._here and number < len(self._loaded):
            transplant(batch, self._loaded[number])

    def calling(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The saved arguments take the place of the given ones."""
        number = len(self.moment.calls) - 1
        if self._here and number < len(self._calls):
            _, saved, named = self._calls[number]
            self._differences += transplant(args, saved) + transplant(kwargs, named)

    # what came out

    def _end(self, kind: str | None) -> None:
        traced = None
        if self._tracer is not None and self._traces:
            self.stop_tracing()
            traced = summed_up(
                self._tracer, self._options["scale"] or self._incident.scale, self._options["deep"], self._since
            )
        gradients = {
            f"{number}/{name}": checksum(parameter.grad)
            for number, root in enumerate(self._roots)
            for name, parameter in root.named_parameters()
            if parameter.grad is not None
        }
        self._write(
            {
                "reached": True,
                "kind": kind or "",
                "losses": [str(loss) for loss in self.losses()],
                "gradients": gradients,
                "differences": self._differences,
                "traced": None if traced is None else traced_document(traced),
            }
        )
        self._wait_for_others()
        child.end_now()

    def not_reached(self) -> None:
        """The script ended before the step."""
        if self.step and not self._written:
            self._write({"reached": False, "steps": self.step})

    def failed(self, event: str, error: Exception) -> None:
        """Ends the replay: what could not be put in place makes the rest meaningless."""
        self._write({"reached": False, "steps": self.step, "error": f"{type(error).__name__}: {error}"})
        child.end_now(3)

    def _write(self, document: dict[str, Any]) -> None:
        self._written = True
        file = child.record_file(".replay.json")
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"rank": child.rank() or 0, **document}), encoding="utf-8")
        part.rename(file)

    def _wait_for_others(self) -> None:
        """Waits until every rank of the incident has written what it saw."""
        ranks, until = self._incident.facts["ranks"], time.monotonic() + _WAIT
        folder: Path = child.folder()
        while len(list(folder.glob("*.replay.json"))) < ranks and time.monotonic() < until:
            time.sleep(0.02)
