"""Incidents of a script that knows nothing of them: the entry in its own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mixprec.monitor.incident._store import IncidentStore
from mixprec.monitor.incident._watch import IncidentWatch

__all__ = ["attach", "watch"]


def watch(options: Mapping[str, Any]) -> IncidentWatch:
    """Saves the failing steps of this process to `options["folder"]` until it is closed.

    The other options are those of `IncidentStore`, and `steps`, which are saved though they do not fail. Call it as
    soon as torch is imported: a replay that has to run from the start begins with the random states of that moment.
    """
    steps = tuple(options.get("steps", ()))
    store = IncidentStore(**{name: value for name, value in options.items() if name != "steps"})
    return IncidentWatch(store, hear_checks=True, steps=steps).__enter__()


def attach(options: Mapping[str, Any]) -> Callable[[], None]:
    """As `watch`; what it returns is called at exit."""
    return watch(options).close
