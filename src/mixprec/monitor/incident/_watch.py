"""A failing step is saved while its weights are still in place, and failures in a row are not saved each."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from torch import nn
from typing_extensions import Self

from mixprec.monitor.incident._moment import Moment
from mixprec.monitor.incident._random import RandomStates
from mixprec.monitor.incident._store import IncidentStore
from mixprec.monitor.incident._window import Windows

__all__ = ["IncidentWatch"]


class IncidentWatch(Windows):
    """Hears training, in the whole process, while its `with` block runs, and saves the steps that fail to `store`.

    Saved is a step that a scaler skipped, one whose loss is not finite before its optimizer steps (without a scaler),
    and one that the script left out by hand after such a loss. Of the failures of one kind the 1st, 2nd, 4th, 8th, …
    are saved, so that a run that skips every step writes ever less.

    - `models`: the top-level modules; those that are called are found by themselves.
    - `saved(folder, moment)` is called after each incident that was written.
    - `steps`: save these steps too, healthy or not, as kind `asked`: to see where gradients are flushed, say.
    - `hear_checks`: also hear `isfinite` and its kin (see `Checks`), which the steps left out by hand need.

    ```python
    with IncidentWatch(IncidentStore("run/incidents")):
        ...  # train
    ```

    **Cost** see `Windows`; a saved incident costs what writing it takes.
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
        self._open_taps = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._open_taps.enter_context(self.hearing(self._hear_checks))
        return self

    def __exit__(self, *error: object) -> None:
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

    def judged(self, kind: str | None) -> None:
        """Saves the step if it failed and its turn has come."""
        if kind is not None and os.getpid() == self._process:  # a forked worker has the taps but is not the run
            self.counts[kind] += 1
            if self.counts[kind] & (self.counts[kind] - 1) == 0:
                self.save(kind)

        elif self.step in self._steps and os.getpid() == self._process:
            self.moment.losses = self.losses()
            self.save("asked")

    def save(self, kind: str) -> Path | None:
        """Saves the step that is under way; its folder, or None (and the store has reported why)."""
        self.moment.kind = kind
        path = self.store.save(self.moment)
        if path is not None and self._saved is not None:
            self._saved(path, self.moment)
        return path
