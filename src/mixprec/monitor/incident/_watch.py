"""A failing step is saved while its weights are still in place, and failures in a row are not saved each."""

from __future__ import annotations

import contextlib
import copy
import os
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import Self

from mixprec.monitor.incident._late import Late
from mixprec.monitor.incident._moment import Moment
from mixprec.monitor.incident._random import RandomStates
from mixprec.monitor.incident._store import IncidentStore
from mixprec.monitor.incident._window import Windows
from mixprec.records import Finding

__all__ = ["IncidentWatch"]

_WORTH_A_STEP = {"MP060": "underflow", "MP135": "weights"}
"""Alerts about steps that do not fail, and the kind as which the next one is kept."""


class IncidentWatch(Windows):
    """Hears training, in the whole process, while its `with` block runs, and saves the steps that fail to `store`.

    Saved is a step that a scaler skipped, one whose loss is not finite though its optimizer steps, and one that the
    script left out by hand after such a loss. Of the failures of one kind the 1st, 2nd, 4th, 8th, …
    are saved, so that a run that skips every step writes ever less.

    - `models`: the top-level modules; those that are called are found by themselves.
    - `saved(folder, moment)` is called after each incident that was written.
    - `steps`: save these steps too, healthy or not, as kind `asked`: to see where gradients are flushed, say. Weights
      and optimizer state are copied as such a step begins with them.
    - `hear_checks`: also hear `isfinite` and its kin (see `Checks`), which the steps left out by hand need.

    ```python
    with IncidentWatch(IncidentStore("run/incidents")):
        ...  # train
    ```

    **Cost** see `Windows`; a saved incident costs what writing it takes. Under a fused optimizer the scaler's flag is
    read when the next step is about to be taken, and until then one more window of batches is referred to.
    """

    def __init__(
        self,
        store: IncidentStore,
        *,
        models: tuple[nn.Module, ...] = (),
        saved: Callable[[Path, Moment], None] | None = None,
        hear_checks: bool = False,
        steps: Collection[int] = (),
    ) -> None:
        super().__init__(models)
        self.store = store
        self.store.initial = self.store.initial or RandomStates.now()
        self.counts: Counter[str] = Counter()
        self._saved = saved
        self._failed: set[str] = set()
        self._process = os.getpid()
        self._hear_checks = hear_checks
        self._steps = frozenset(steps)
        self._asked = ""
        self._keeping = ""
        self._late: Late | None = None
        self._open_taps = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._open_taps.enter_context(self.hearing(self._hear_checks))
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """The run ends: a step that was not taken is judged, and nothing is heard any more."""
        self._open_taps.close()
        self.finish()

    def failed(self, event: str, error: Exception) -> None:
        """Reports once per kind of event that something went wrong in hearing it; training is not touched."""
        if event not in self._failed:
            self._failed.add(event)
            self.store.report(f"Incidents may be incomplete: {event} failed with {type(error).__name__}: {error}")

    def keep(self, batch: Any) -> None:
        """Keeps a reference to the data of the next micro-batch; those of a DataLoader are heard without it."""
        self.batch_loaded(None, batch)

    def ask(self, kind: str) -> None:
        """Saves the next step that begins and does not fail, as `kind`."""
        self._asked = kind

    def alerted(self, finding: Finding) -> None:
        """Keeps a step for an alert that is about steps that do not fail, such as underflow."""
        if finding.code in _WORTH_A_STEP:
            self.ask(_WORTH_A_STEP[finding.code])

    def save(self, kind: str) -> Path | None:
        """Saves the step that is under way; its folder, or None (and the store has reported why)."""
        self.moment.kind = kind
        return self._save(self.moment)

    # what is heard of windows

    def opened(self) -> None:
        """Settles whether this step is kept though it may not fail."""
        self._keeping = "asked" if self.step in self._steps else self._asked

    def calling(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Of a step that is kept anyway the weights are copied, since its optimizers will change them."""
        weights = self.moment.weights
        if self._keeping and id(root) not in weights:
            weights[id(root)] = {id(parameter): _copied(parameter) for parameter in root.parameters()}

    def _add(self, optimizer: Optimizer) -> None:
        super()._add(optimizer)
        states = self.moment.states
        if self._keeping and self.moment.calls and id(optimizer) not in states:
            states[id(optimizer)] = copy.deepcopy(optimizer.state_dict())

    def judged(self, kind: str | None) -> None:
        """Saves the step if it failed and its turn has come, or if it was asked for."""
        if os.getpid() != self._process:  # a forked worker has the taps but is not the run
            return
        if self._turn(kind):
            self.save(kind or "")
        elif self._keeping:
            self.read()
            self.save(self._keeping)
            self._asked = ""

    def _turn(self, kind: str | None) -> bool:
        """Counts a failure; whether it is the 1st, 2nd, 4th, 8th, … of its kind."""
        if kind is None:
            return False
        self.counts[kind] += 1
        return self.counts[kind] & (self.counts[kind] - 1) == 0

    def postponed(self, flags: tuple[Tensor, ...], losses: tuple[Tensor, ...]) -> bool:
        """A step that nobody asked for is judged when the next is about to be taken."""
        if self._keeping or os.getpid() != self._process:
            return False
        self._late = Late(self.moment, losses, flags)
        return True

    def settled(self) -> None:
        """Saves the postponed step if it was skipped: its weights are in place until the next one is taken."""
        late, self._late = self._late, None
        if late is None or not late.found_inf() or not self._turn("skipped"):
            return
        moment = late.moment
        moment.kind, moment.late, moment.scaling = "skipped", True, late.scaling()
        moment.losses = tuple(float(loss.float().mean()) for loss in late.losses)
        moment.scale = moment.scaling.get("scale")
        moment.notes.append("found a step late, when its gradients were gone: a replay is compared by its losses alone")
        self._save(moment)

    def _save(self, moment: Moment) -> Path | None:
        path = self.store.save(moment)
        if path is not None and self._saved is not None:
            self._saved(path, moment)
        return path


def _copied(parameter: Tensor) -> Tensor:
    return getattr(parameter, "_local_tensor", parameter).detach().clone()
