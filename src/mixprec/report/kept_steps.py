"""Steps that were kept for replay, at their place among the steps of the run, with what a replay has said of them."""

from __future__ import annotations

import bisect
import math
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mixprec.errors import CheckpointError
from mixprec.monitor import Run
from mixprec.monitor.incident import Incident, load_incident
from mixprec.monitor.replay import kept_result

__all__ = ["KeptStep", "kept_steps"]


@dataclass(frozen=True)
class KeptStep:
    """One incident. `step` is that of the record, on the page's axis; `folder` where it is, `link` from the run's.

    `replayed` is the op at fault in words, empty where nobody has replayed it; `text` its line of the script.
    """

    step: int
    rank: int
    kind: str
    loss: float | None
    folder: str
    link: str
    replayed: str = ""
    text: str = ""
    exact: bool = True

    @property
    def command(self) -> str:
        """What replays it."""
        return f"mixprec replay {shlex.quote(self.folder)}"

    @property
    def order(self) -> float:
        """What the loss is sorted by."""
        return math.inf if self.loss is None else -math.inf if math.isnan(self.loss) else self.loss

    @property
    def name(self) -> str:
        """The folder's own name."""
        return Path(self.folder).name

    def linked_from(self, page: Path) -> KeptStep:
        """The same with a link that leads from `page`."""
        return replace(self, link=Path(os.path.relpath(self.folder, page.parent)).as_posix())

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "step": self.step,
            "rank": self.rank,
            "kind": self.kind,
            "loss": self.loss,
            "folder": self.folder,
            "headline": self.replayed,
        }


def kept_steps(run: Run) -> tuple[KeptStep, ...]:
    """The incidents below the run's folder, in the order of steps."""
    place = Path(run.folder)
    found = []
    for path in sorted(place.glob("**/incident.json")):
        if any(part.startswith(".") for part in path.relative_to(place).parts):
            continue  # being written, or being removed
        try:
            found.append(_kept(run, place, load_incident(path.parent)))
        except (CheckpointError, KeyError, TypeError):
            continue  # not written by us, or by another version
    return tuple(sorted(found, key=lambda step: (step.step, step.rank)))


def _kept(run: Run, place: Path, incident: Incident) -> KeptStep:
    result = kept_result(incident.folder) or {}
    losses = incident.losses
    return KeptStep(
        step=_recorded(run, incident),
        rank=incident.rank,
        kind=incident.kind,
        loss=sum(losses) if losses else None,
        folder=str(incident.folder),
        link=incident.folder.relative_to(place).as_posix(),
        replayed=str(result.get("headline", "")),
        text=str(result.get("text") or ""),
        exact=bool(result.get("exact", True)),
    )


def _recorded(run: Run, incident: Incident) -> int:
    """The step of the record that was the next to end: a run that was resumed counts on, its incidents from 0."""
    steps = next((rank.steps for rank in run.ranks if rank.rank == incident.rank), ())
    place = bisect.bisect_left([record.time for record in steps], incident.facts["at"])
    return steps[min(place, len(steps) - 1)].step if steps else incident.step
