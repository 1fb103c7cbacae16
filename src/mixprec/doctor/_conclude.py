"""From arms to a diagnosis: all judges are heard, and where none accuses, what was looked at is said."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mixprec.doctor._arm import Arm, ArmPlan, Examination
from mixprec.doctor._diagnosis import Diagnosis
from mixprec.doctor._plan import next_arm
from mixprec.doctor._verdict import open_question, verdicts
from mixprec.records import Evidence, Verdict

__all__ = ["conclude", "next_plan"]

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
    problem = problem_of(known, found) or open_question(known)
    return Diagnosis(known, found, problem=problem, looked_at=tuple(looked_at(known)))


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


def looked_at(known: Examination) -> Iterator[Evidence]:
    """Measured values that a clean bill rests on."""
    if not known.arms:
        return
    arm = known.arms[0]
    yield Evidence("steps", len(arm.steps), "", arm.name)
    if arm.scalers:
        skipped = sum(step.skipped for step in arm.steps)
        yield Evidence("skipped steps", skipped, "", arm.name)
        scales = [step.scale_after or step.scale for step in arm.steps if step.scale is not None]
        if scales:
            yield Evidence("loss scale at the end", scales[-1], "", arm.name)
    yield from _headroom(arm)
    tiny = [s.activation_zero_share for s in arm.steps if s.activation_zero_share is not None]
    base = _fp32(known)
    if tiny and base is not None:
        exact = [s.activation_zero_share for s in base.steps if s.activation_zero_share is not None]
        if exact:
            lost = max(0.0, sum(tiny) / len(tiny) - sum(exact) / len(exact))
            yield Evidence("activation gradients lost to underflow", round(lost, 6), "share", arm.name)
    yield from _bought(arm, base)


def _headroom(arm: Arm) -> Iterator[Evidence]:
    """Powers of two between the largest float16 activation and the format's end."""
    sizes = [m.output_amax for m in arm.modules if "float16" in m.output_dtypes and m.output_amax]
    finite = [size for size in sizes if math.isfinite(size)]
    if finite:
        yield Evidence("headroom of float16 activations", round(math.log2(65504 / max(finite)), 1), "bits", arm.name)


def _fp32(known: Examination) -> Arm | None:
    return next((arm for arm in known.arms if arm.changes("precision") == "fp32"), None)


def _bought(arm: Arm, base: Arm | None) -> Iterator[Evidence]:
    """What mixed precision bought in this run."""
    if base is None:
        return
    times = [_median([s.seconds for s in one.steps[1:] if s.seconds is not None]) for one in (arm, base)]
    if times[0] and times[1]:
        yield Evidence("time per step against float32", round(times[0] / times[1], 2), "times", arm.name)
    peaks = [one.facts.get("peak_bytes") for one in (arm, base)]
    if peaks[0] and peaks[1]:
        yield Evidence("peak memory against float32", round(peaks[0] / peaks[1], 2), "times", arm.name)


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
