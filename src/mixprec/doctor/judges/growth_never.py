"""MP015: the count of clean steps has passed the growth interval, and only where it equals it does the scale grow."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._protocol import last, on_ranks
from mixprec.doctor.judges._reading import courses, observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Severity, Verdict

WORTH = 4
"""Intervals that pass without the growth that each of them owes, from which on it is worth a word."""


def judge(examination: Examination) -> Verdict | None:
    """A count beyond the interval, and no growth or overflow since: the interval was lowered under it."""
    arm = observed(examination)
    for events in on_ranks(arm) if arm is not None else ():
        assert arm is not None
        missed = last(events, "growth_missed")
        if missed is None or _moved_since(arm, missed):
            continue
        owed = _steps_since(arm, missed) // max(1, int(missed.data["interval"]))
        if owed >= WORTH:
            return _say(arm, events, missed, owed)
    return None


def _moved_since(arm: Arm, missed: Event) -> bool:
    """Whether the scale moved later: an overflow puts the count back to 0."""
    return any(
        step.iteration > missed.iteration and step.scale_after is not None and step.scale_after != step.scale
        for steps in courses(arm)
        for step in steps
        if step.rank == missed.rank and step.scaler == missed.scaler
    )


def _steps_since(arm: Arm, missed: Event) -> int:
    return max(
        (
            sum(step.iteration > missed.iteration and step.scaler == missed.scaler for step in steps)
            for steps in courses(arm)
        ),
        default=0,
    )


def _say(arm: Arm, events: tuple[Event, ...], missed: Event, owed: int) -> Verdict:
    scale = next((s.scale_after for steps in courses(arm) for s in reversed(steps) if s.scale_after is not None), None)
    return say(
        "MP015",
        "The growth interval was lowered below the number of clean steps already counted: the scale grows no more.",
        _site(arm, events, missed),
        evidence=(
            Evidence("clean steps counted", missed.data["count"], arm=arm.name, step=missed.iteration),
            Evidence("growth interval", missed.data["interval"], arm=arm.name, step=missed.iteration),
            Evidence("growths that did not happen since", owed, arm=arm.name),
            Evidence("loss scale at the end", scale, arm=arm.name),
        ),
        confidence=Confidence.CONFIRMED,
        severity=Severity.WARNING,
    )


def _site(arm: Arm, events: tuple[Event, ...], missed: Event) -> Location:
    """Where the interval was lowered, or a state with a high count was loaded; else the scaler."""
    before = [event for event in events if event.index < missed.index]
    cause = last(before, "interval_changed", "scaler_restored")
    made = next((s.site for s in arm.scalers if s.scaler == missed.scaler and s.rank == missed.rank), Location())
    return made if cause is None else cause.site
