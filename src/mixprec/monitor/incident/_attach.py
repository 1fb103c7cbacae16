"""Incidents of a script that knows nothing of them: the entry in its own process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from mixprec.monitor.incident._store import IncidentStore
from mixprec.monitor.incident._watch import IncidentWatch

__all__ = ["attach"]


def attach(options: Mapping[str, Any]) -> Callable[[], None]:
    """Saves the failing steps of this process to `options["folder"]`; what it returns is called at exit.

    The other options are those of `IncidentStore`. Call it as soon as torch is imported: the random states of that
    moment are where a replay that has to run from the start begins.
    """
    stack = contextlib.ExitStack()
    stack.enter_context(IncidentWatch(IncidentStore(**options), hear_checks=True))
    return stack.close
