"""How much of a running script is watched and timed before it may end."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """How much is watched. Counts are steps, times are seconds.

    `patience` is how long a script that has shown only float32 may go on in the hope of a region, `grace` how long one
    that has shown a region may go on in the hope of a float32 control.
    """

    watched: int = 3
    timed: int = 20
    most_timed: int = 40
    patience: float = 20.0
    grace: float = 3.0
    events: int = 1_500_000
