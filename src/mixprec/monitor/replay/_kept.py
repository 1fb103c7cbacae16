"""What a replay found is kept in the incident's folder, for whoever reads about the run later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mixprec._trace import source_line
from mixprec.monitor.replay._result import Replay
from mixprec.records import to_json

__all__ = ["keep_result", "kept_result"]

_NAME = "replay.json"


def keep_result(folder: str | Path, found: Replay) -> None:
    """Writes what `found` says in short to `folder`, the incident's, whole or not at all; a later one replaces it."""
    path = Path(folder) / _NAME
    part = path.with_suffix(".part")
    part.write_text(json.dumps(_document(found)), encoding="utf-8")
    part.replace(path)


def kept_result(folder: str | Path) -> dict[str, Any] | None:
    """What the last `keep_result` wrote to `folder`; None where the incident was not replayed."""
    try:
        document = json.loads((Path(folder) / _NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _document(found: Replay) -> dict[str, Any]:
    first = None if found.traced is None else found.traced.origin.first
    lost = found.most_lost
    at = first or (None if lost is None else lost.record)
    return {
        "repeats": found.repeats,
        "exact": found.exact,
        "healthy": found.healthy,
        "headline": found.headline,
        "location": None if at is None else to_json(at.location),
        "text": None if at is None else source_line(at.location),
        "avoiding_scale": found.avoiding_scale,
    }
