"""Calls of the training protocol in order; an iteration that ran as an earlier one did is written only at the start.

The first iterations are written whole. Later ones are held until they are over and dropped where the same calls at
the same lines, with the same outcome, were written before; the last one before an exception is always written.
"""

from __future__ import annotations

from typing import Any

from mixprec._trace import user_site
from mixprec.doctor._arm import Event
from mixprec.doctor._recorder._scene import Scene
from mixprec.records import Location

__all__ = ["Events"]

WHOLE = 24
"""Iterations that are written whole."""
HELD = 4000
"""Events of one iteration that are held; the rest of a longer one is dropped."""


class Events:
    """Writes events, numbered in the order in which they happened."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._index = 0
        self._held: list[Event] = []
        self._iteration = 0
        self._seen: set[Any] = set()

    def tell(
        self,
        kind: str,
        *,
        scaler: int | None = None,
        optimizer: int | None = None,
        site: Location | None = None,
        **data: Any,
    ) -> None:
        """One call happened, at the user's line that led here unless `site` is given."""
        if self._scene.locator is not None and kind != "step":  # told inside a hook that must not be changed meanwhile
            self._scene.locator.settle()
        if self._scene.iteration != self._iteration:
            self._turn()
        if len(self._held) >= HELD:
            return
        event = Event(
            kind=kind,
            index=self._index,
            iteration=self._iteration,
            scaler=scaler,
            optimizer=optimizer,
            site=user_site(1) if site is None else site,
            data=data,
            rank=self._scene.writer.rank,
        )
        self._index += 1
        self._held.append(event)
        if self._iteration < WHOLE:
            self._scene.writer.record(event)

    def _turn(self) -> None:
        """An iteration is over."""
        signature = tuple(
            (event.kind, event.scaler, event.optimizer, event.site.line, _kind_of(event.data)) for event in self._held
        )
        if self._iteration >= WHOLE and signature not in self._seen:
            self._write()
        if len(self._seen) < 4096:
            self._seen.add(signature)
        self._held = []
        self._iteration = self._scene.iteration

    def _write(self) -> None:
        for event in self._held:
            self._scene.writer.record(event)

    def flush(self) -> None:
        """Writes what is held of the iteration that is not over."""
        if self._iteration >= WHOLE:
            self._write()
        self._held = []


def _kind_of(data: dict[str, Any]) -> Any:
    """What of an event's data makes it another kind of event: flags and words, not numbers."""
    return tuple(sorted((key, value) for key, value in data.items() if isinstance(value, (bool, str))))
