"""From arms to a diagnosis: all judges are heard, and where none accuses, what was looked at is said."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.doctor._arm import Arm, ArmPlan, Examination
from mixprec.doctor._diagnosis import Diagnosis
from mixprec.doctor._plan import next_arm
from mixprec.doctor._scale_question import scale_question
from mixprec.doctor._verdict import looked_at, open_question, verdicts
from mixprec.records import Evidence, Verdict

__all__ = ["conclude", "next_plan", "problem_of"]

FAST = 5
"""Arms of a fast examination."""


def next_plan(known: Examination, fast: bool) -> ArmPlan | None:
    """The arm that should run next; None where nothing is undecided that an arm could decide."""
    if fast and len(known.arms) >= FAST:
        return None
    return next_arm(known)


def conclude(known: Examination) -> Diagnosis:
    """What the arms come to."""
    found = verdicts(known)
    return Diagnosis(
        known,
        found,
        problem=problem_of(known, found),
        looked_at=(*looked_at(known), *_bought(known)),
        open_question=open_question(known) or scale_question(known),
    )


def problem_of(known: Examination, found: tuple[Verdict, ...]) -> str | None:
    """Why nothing could be judged: no arm ran, or the script ends in an error of its own that no verdict explains."""
    if not known.arms:
        return "The script was not run: there was no time for it."
    first = known.arms[0]
    if found:
        return None
    if first.crash is not None:
        return f"The script ends in an error of its own.\n\n{first.crash.traceback.rstrip()}"
    if first.returncode not in (0, None) and first.ended == "finished" and not first.steps:
        return f"The script ended with exit code {first.returncode} before it took a step.\n\n{first.output_tail}"
    if first.ended == "killed":
        return f"The script was killed by signal {-first.returncode}.\n\n{first.output_tail}"
    return None


def _fp32(known: Examination) -> Arm | None:
    return next((arm for arm in known.arms if arm.changes("precision") == "fp32"), None)


def _bought(known: Examination) -> Iterator[Evidence]:
    """What mixed precision bought in this run."""
    base = _fp32(known)
    if base is None:
        return
    arm = known.arms[0]
    times = [_median([s.seconds for s in one.steps[1:] if s.seconds is not None]) for one in (arm, base)]
    if times[0] and times[1]:
        yield Evidence("time per step against float32", round(times[0] / times[1], 2), "times", arm.name)
    peaks = [one.facts.get("peak_bytes") for one in (arm, base)]
    if peaks[0] and peaks[1]:
        yield Evidence("peak memory against float32", round(peaks[0] / peaks[1], 2), "times", arm.name)


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
