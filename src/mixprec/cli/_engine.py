"""`mixprec run --engine`: the script's own scaler and autocast become mixprec's before its first line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mixprec._patch import patch
from mixprec.monitor._attach import attach as attach_monitor

__all__ = ["attach"]


def attach(options: Mapping[str, Any]) -> Callable[[], None]:
    """The entry in the script's process: the monitor's, under a patch. Option: `policy`, a name or text or None."""
    patched = patch(options.get("policy"))
    finish_monitor = attach_monitor(options)

    def finish() -> None:
        finish_monitor()
        patched.undo()

    return finish
