"""MP028: a parameter belongs to two optimizers that are stepped through one scaler."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination
from mixprec.doctor.judges._protocol import between, on_ranks
from mixprec.doctor.judges._reading import observed, optimizer_of
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Two optimizers that share a parameter step between two updates of the scaler."""
    arm = observed(examination)
    for optimizer in arm.optimizers if arm is not None else ():
        assert arm is not None
        for other in optimizer.shared_with:
            if other < optimizer.optimizer and _together(arm, optimizer.optimizer, other):
                return say(
                    "MP028",
                    "Two optimizers hold the same parameter, whose gradient the scaler unscales twice.",
                    optimizer.site if optimizer.site != Location() else None,
                    evidence=(
                        Evidence("optimizers that share parameters", 2, arm=arm.name),
                        Evidence("line of the other optimizer", _line(arm, other), arm=arm.name),
                    ),
                    confidence=Confidence.CONFIRMED,
                )
    return None


def _line(arm: Arm, number: int) -> int | None:
    other = optimizer_of(arm, number)
    return other.site.line if other else None


def _together(arm: Arm, one: int, other: int) -> bool:
    for events in on_ranks(arm):
        updates = [e for e in events if e.kind == "update"]
        for before, after in zip([None, *updates], updates, strict=False):
            stepped = {e.optimizer for e in between(events, before, after) if e.kind == "scaler_step"}
            if {one, other} <= stepped:
                return True
    return False
