"""A change is shown as a patch only with what became of a run that had it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from mixprec.doctor._arm import Arm, ArmPlan, Examination
from mixprec.doctor._diagnosis import Diagnosis, Patch
from mixprec.doctor._patches import Change, island, lint_change
from mixprec.doctor._verdict import verdicts
from mixprec.doctor.judges._reading import failure
from mixprec.records import Evidence, Location, Verdict

__all__ = ["candidates", "helped", "plan_for", "with_patch"]

MOST = 3
"""Changes that are tried."""
LIKE = 0.2
"""How far, relatively, the losses of a patched run may be from those of the FP32 control."""
ISLANDS = ("first_inf", "first_nan", "nan_from_inf")


def candidates(diagnosis: Diagnosis) -> Iterator[Change]:
    """Changes worth trying for the first verdict, at most three: the fix of a lint finding, then islands."""
    verdict, known = diagnosis.verdict, diagnosis.examination
    if verdict is None:
        return
    changes = [change for finding in known.lint if finding.code == verdict.code and (change := lint_change(finding))]
    if _numbers_break(known) and _fp32_is_well(known):
        for place in _places(verdict, known):
            changes += island(place)
    yield from {change.after: change for change in changes[: 2 * MOST]}.values()


def _numbers_break(known: Examination) -> bool:
    """Whether the run failed, or an op was located that breaks numbers though the script itself passes over it."""
    located = known.arm("locate")
    ops = located.ops if located else ()
    return failure(known.arms[0]) is not None or any(o.role in ISLANDS and o.op.phase == "forward" for o in ops)


def _fp32_is_well(known: Examination) -> bool:
    control = known.arm("fp32")
    return control is not None and failure(control) is None


def _places(verdict: Verdict, known: Examination) -> list[Location]:
    """Where numbers went wrong in forward, and where the verdict points."""
    arm = known.arm("locate")
    ops = [one.op for role in ISLANDS for one in (arm.ops if arm else ()) if one.role == role]
    found = [op.location for op in ops if op.phase == "forward" and op.location.file][:1]
    if verdict.location.file is not None and not found:
        found.append(verdict.location)
    return found


def plan_for(known: Examination, number: int) -> ArmPlan:
    """An arm long enough to see whether the failure is gone."""
    found = failure(known.arms[0])
    steps = None
    if found is not None:
        attempts = max((s.index + 1 for s in known.arms[0].steps if s.iteration <= found.iteration), default=1)
        steps = attempts + 30
    return ArmPlan(f"patch-{number}", steps=steps)


def helped(known: Examination, verdict: Verdict, arm: Arm) -> bool:
    """Whether the run with the change neither fails, nor leads to the same verdict again, nor learns another thing than
    the FP32 control does.
    """
    if failure(arm) is not None or not (arm.steps or arm.modules) or not _learns_as(known.arm("fp32"), arm):
        return False
    first = known.arms[0]
    if failure(first) is None and _numbers_break(known) and len(arm.steps) <= len(first.steps):
        return False  # the script leaves out what is not finite, and leaves out as much as before
    again = Examination(known.command, (dataclasses.replace(arm, name="observe"),), wanted_steps=known.wanted_steps)
    return all(one.code != verdict.code for one in verdicts(again))


def _learns_as(control: Arm | None, arm: Arm) -> bool:
    """Whether the losses at the last steps that both made are close; True where there is nothing to compare."""
    if control is None:
        return True
    pairs = [
        (one.loss, other.loss)
        for one, other in zip(arm.of(0), control.of(0), strict=False)
        if one.loss is not None and other.loss is not None
    ][-5:]
    if not pairs or not all(math.isfinite(number) for pair in pairs for number in pair):
        return not pairs
    mine, theirs = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return bool(abs(mine - theirs) <= LIKE * max(abs(mine), abs(theirs)))


def with_patch(diagnosis: Diagnosis, change: Change, arm: Arm) -> Diagnosis:
    """The diagnosis with a change that helped, which its first verdict then names as tried."""
    first = dataclasses.replace(
        diagnosis.verdicts[0], fix_tried=Evidence("the run with the patch", "is healthy", arm=arm.name)
    )
    return dataclasses.replace(
        diagnosis,
        verdicts=(first, *diagnosis.verdicts[1:]),
        patch=Patch(change.about, change.diff, arm.name, True),
    )
