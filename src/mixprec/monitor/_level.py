"""A level is a row: how often modules and samples are looked at, and how many elements a sample has.

What costs next to nothing (loss, norm, scale, event, learning rate, time) is recorded at every step of every level.
`docs/monitor.md` has the measured cost of each level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mixprec.errors import UnknownNameError

__all__ = ["DEEP", "LEVELS", "LIGHT", "STANDARD", "Level", "level_named"]


@dataclass(frozen=True)
class Level:
    """Every `every`-th step is looked at in detail: `elements` of each parameter and gradient, and all modules.

    So are steps 1, 2, 4, 8, … before that: a run shows early what it is like. The largest logit, which means reading
    what whole models return, is known of every `logits`-th step.
    """

    name: str
    every: int
    elements: int
    logits: int = 1

    def looks_at(self, step: int) -> bool:
        """Whether step number `step` is looked at."""
        return step % self.every == 0 or (step < self.every and step & (step - 1) == 0)


LIGHT = Level("light", every=400, elements=256, logits=8)
STANDARD = Level("standard", every=50, elements=1024, logits=4)
DEEP = Level("deep", every=1, elements=4096)

LEVELS: Mapping[str, Level] = MappingProxyType({level.name: level for level in (LIGHT, STANDARD, DEEP)})
"""Every level by its name, from the cheapest."""


def level_named(level: str | Level) -> Level:
    """The level called `level`. Raises: UnknownNameError."""
    if isinstance(level, Level):
        return level
    if level not in LEVELS:
        raise UnknownNameError("level", level, LEVELS)
    return LEVELS[level]
