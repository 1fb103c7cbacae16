"""MP137: memory from torch.empty is read before it was written, which an arm shows in which that memory is known."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination
from mixprec.doctor.judges._reading import failure, observed, sound
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """It fails where that memory is NaN, or no longer fails where it is 0."""
    arm, filled = observed(examination), examination.arm("fill-empty")
    if arm is None or filled is None:
        return None
    with_nan = math.isnan(float(filled.changes("fill_empty")))
    if with_nan and sound(arm) and failure(filled) is not None:
        return _say(arm, filled, "NaN", Severity.WARNING)
    found = failure(arm)
    if not with_nan and found is not None and sound(filled) and _reaches(filled, found.iteration):
        return _say(arm, filled, "0", Severity.ERROR)
    return None


def _reaches(arm: Arm, iteration: int) -> bool:
    """An arm that ended before the place where the other failed says nothing."""
    return any(step.iteration >= iteration and step.finished for step in arm.steps)


def _say(arm: Arm, filled: Arm, held: str, severity: Severity) -> Verdict | None:
    made = [event.site for event in arm.events if event.kind == "empty_made"]
    if not made:
        return None
    broken = failure(filled)
    lines = ", ".join(str(site.line) for site in made)
    return say(
        "MP137",
        "Memory that torch.empty left as it was is read before anything is written to it.",
        made[0],
        evidence=(
            Evidence("lines that ask for uninitialised memory", lines, arm=arm.name),
            Evidence("without a change", "fails" if failure(arm) else "healthy", arm=arm.name),
            Evidence(f"with {held} in that memory", f"fails ({broken.how})" if broken else "healthy", arm=filled.name),
        ),
        confidence=Confidence.CONFIRMED,
        severity=severity,
    )
