"""A cause is data: what goes wrong, how it shows, what proves it, and what to do."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Where(str, enum.Enum):
    """Who can see a cause: a linter, a run, or only a control run in another precision."""

    LINT = "lint"
    RUN = "run"
    CONTROL = "control"


@dataclass(frozen=True)
class Cause:
    """One cause of failure. `code` is `MP` and three digits, `name` is kebab-case, texts are plain sentences.

    `raises` tells what PyTorch itself does: `"silent"`, `"warns"` or `"raises"`. `sources` are links, at least one
    where the cause is somebody's finding. `related` are codes that are easily mistaken for this one.
    """

    code: str
    name: str
    title: str
    symptom: str
    evidence: str
    fix: str
    where: tuple[Where, ...]
    raises: str = "silent"
    sources: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
