"""`audit_script`: the audit of an unmodified script, in a process of its own that ends when enough was seen."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mixprec._script import Command, Outcome, run_script
from mixprec.audit._child import SUFFIX
from mixprec.audit._report import AuditReport
from mixprec.errors import MisuseError

__all__ = ["audit_script"]

AFTER = 1.5
"""Seconds that other ranks get to write their reports before everything is ended."""


def audit_script(
    command: Command,
    *,
    seconds: float = 120.0,
    measure: bool = False,
    accelerator: str | None = None,
    on_output: Callable[[str], None] | None = None,
) -> AuditReport:
    """Runs `command` until a few of its steps were watched and timed, at most `seconds`, and ends it.

    The script is not changed; what it writes before it is ended is written. `measure` lets it go on for a few steps in
    each other precision. With several ranks the first one's report is returned.

    Raises: MisuseError where no step was seen, with the end of the script's output; InvalidValueError where there is
    no such script.
    """
    with tempfile.TemporaryDirectory(prefix="mixprec-audit-") as folder:
        place = Path(folder)
        outcome = run_script(
            command,
            entry="mixprec.audit._child:entry",
            options={"seconds": seconds, "measure": measure, "accelerator": accelerator},
            timeout=seconds + 30,
            folder=place,
            on_output=on_output,
            until=_written(place),
        )
        reports = [
            pickle.loads(path.read_bytes()) for path in sorted(place.glob(f"*{SUFFIX}"))
        ]  # ours, from our folder
    if not reports:
        raise MisuseError("MP111", command.name, _nothing(outcome, seconds))
    best: AuditReport = max(reports, key=lambda report: (report.mixed, report.products.flops))
    ended = () if outcome.returncode <= 0 else (f"the script ended with exit code {outcome.returncode}",)
    return replace(best, notes=(*best.notes, *ended))


def _written(place: Path) -> Callable[[], bool]:
    """True some time after the first report is there."""
    first: list[float] = []

    def check() -> bool:
        if not first and any(place.glob(f"*{SUFFIX}")):
            first.append(time.monotonic())
        return bool(first) and time.monotonic() - first[0] > AFTER

    return check


def _nothing(outcome: Outcome, seconds: float) -> str:
    if outcome.timed_out:
        why = f"It was ended after {seconds:g} s; raise --seconds where the first steps come later."
    elif outcome.returncode:
        why = f"It ended with exit code {outcome.returncode}."
    else:
        why = "It ended by itself without calling a model or entering a region."
    errors = "\n".join(outcome.errors)
    return f"No step of the script was seen. {why}\n{errors}{outcome.output_tail}"
