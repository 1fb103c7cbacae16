"""A change is shown as a patch only with what became of a run that had it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mixprec.doctor._arm import Arm, ArmPlan, Examination
from mixprec.doctor._diagnosis import Diagnosis, Patch
from mixprec.doctor._patches import Change, call_island, code_islands, in_code_of, lint_change
from mixprec.doctor._verdict import verdicts
from mixprec.doctor.judges._reading import courses, failure, skips
from mixprec.records import Evidence, Location, Verdict

__all__ = [
    "MOST",
    "helped",
    "island_of",
    "near",
    "plan_for",
    "search_plan",
    "settled",
    "wants_island",
    "wider",
    "with_island",
    "with_modules",
    "with_patch",
]

MOST = 3
"""Changes that are tried before modules are searched, and rounds of the search."""
LIKE = 0.2
"""How far, relatively, the losses of a patched run may be from those of the FP32 control."""
ISLANDS = ("first_inf", "first_nan", "nan_from_inf")


def near(diagnosis: Diagnosis) -> Iterator[Change]:
    """Changes at the line of the first verdict: the fix of a lint finding, then islands of code, the smallest first."""
    verdict, known = diagnosis.verdict, diagnosis.examination
    changes: list[Change] = []
    if verdict is not None:
        found = [finding for finding in known.lint if finding.code == verdict.code]
        changes += [change for finding in found if (change := lint_change(finding)) is not None]
    if wants_island(diagnosis):
        for place, kind in _places(verdict, known):
            call = call_island(place)
            changes += [] if call is None else [call]
            changes += code_islands(place) if _own(place, kind) else ()
    yield from _once(changes)


def wider(diagnosis: Diagnosis) -> Iterator[Change]:
    """Islands of code that merely calls what is at fault."""
    known = diagnosis.examination
    if wants_island(diagnosis):
        places = [place for place, kind in _places(diagnosis.verdict, known) if not _own(place, kind)]
        yield from _once(change for place in places for change in code_islands(place))


def wants_island(diagnosis: Diagnosis) -> bool:
    """Whether something is wrong and float32 is known to cure it, so that a part in float32 may."""
    known = diagnosis.examination
    wrong = diagnosis.verdict is not None or diagnosis.open_question is not None
    return wrong and _numbers_break(known) and _fp32_is_well(known)


def _once(changes: Iterable[Change]) -> Iterator[Change]:
    yield from {change.after: change for change in changes}.values()


def _own(place: Location, kind: str | None) -> bool:
    """Whether the line is code of the module at fault, or of none."""
    return not place.module or in_code_of(place, kind)


def _numbers_break(known: Examination) -> bool:
    """Whether the run failed, or an op was located that breaks numbers though the script itself passes over it."""
    located = known.arm("locate")
    ops = located.ops if located else ()
    return failure(known.arms[0]) is not None or any(o.role in ISLANDS and o.op.phase == "forward" for o in ops)


def _fp32_is_well(known: Examination) -> bool:
    control = known.arm("fp32")
    return control is not None and failure(control) is None


def _places(verdict: Verdict | None, known: Examination) -> list[tuple[Location, str | None]]:
    """Where numbers went wrong in forward, else where the verdict points, with the class of the module there."""
    arm = known.arm("locate")
    ops = [one.op for role in ISLANDS for one in (arm.ops if arm else ()) if one.role == role]
    found = [(op.location, op.module_class) for op in ops if op.phase == "forward" and op.location.file][:1]
    if not found and verdict is not None and verdict.location.file is not None:
        found.append((verdict.location, None))
    return found


def search_plan(known: Examination, arm: Arm, number: int, seconds: float) -> ArmPlan | None:
    """An arm that searches modules in the step in which `arm` fails; None where it does not fail."""
    found, located = failure(arm), known.arm("locate")
    iterations = {found.iteration} if found is not None else set()
    if arm is known.arms[0] and located is not None:
        iterations |= {one.iteration for one in located.ops if one.role in ISLANDS}
    if not iterations:
        return None
    return ArmPlan(f"island-{number}", trace={"search": sorted(iterations), "seconds": seconds})


def island_of(arm: Arm) -> Mapping[str, Any] | None:
    """What an arm that searched found: modules that are enough, and not merely the whole model."""
    island: Mapping[str, Any] | None = arm.facts.get("island")
    return island if island is not None and island["modules"] and "" not in island["modules"] else None


def plan_for(known: Examination, name: str) -> ArmPlan:
    """An arm long enough to see whether the failure is gone."""
    found = failure(known.arms[0])
    steps = None
    if found is not None:
        attempts = max((s.index + 1 for s in known.arms[0].steps if s.iteration <= found.iteration), default=1)
        steps = attempts + 30
    return ArmPlan(name, steps=steps)


def settled(arm: Arm) -> float | None:
    """The scale that a healthy run found after skips at its start, which float32 does not make; None without them."""
    if failure(arm) is not None:
        return None
    starts = [seen for steps in courses(arm) if (seen := skips(steps)).warm_up and seen.settled is not None]
    return min((seen.settled for seen in starts if seen.settled is not None), default=None)


def helped(known: Examination, verdict: Verdict | None, arm: Arm) -> bool:
    """Whether the run with the change neither fails, nor leads to the same verdict again, nor learns another thing than
    the FP32 control does.
    """
    if failure(arm) is not None or not (arm.steps or arm.modules) or not _learns_as(known.arm("fp32"), arm):
        return False
    first = known.arms[0]
    if failure(first) is None and _numbers_break(known) and len(arm.steps) <= len(first.steps):
        return False  # the script leaves out what is not finite, and leaves out as much as before
    again = Examination(known.command, (dataclasses.replace(arm, name="observe"),), wanted_steps=known.wanted_steps)
    return verdict is None or all(one.code != verdict.code for one in verdicts(again))


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
    tried = _of_first(diagnosis, fix_tried=Evidence("the run with the patch", "is healthy", arm=arm.name))
    question = diagnosis.open_question
    if question is not None:
        question = f"{question} Tried: the run with the patch is healthy (arm {arm.name})."
    return dataclasses.replace(tried, patch=Patch(change.about, change.diff, arm.name, True), open_question=question)


def with_modules(diagnosis: Diagnosis, island: Mapping[str, Any], arm: Arm) -> Diagnosis:
    """The same of modules in float32 for which no change of the text is known."""
    what = f"the run with {', '.join(island['modules'])} in float32"
    return _of_first(diagnosis, fix_tried=Evidence(what, "is healthy", arm=arm.name))


def with_island(diagnosis: Diagnosis, island: Mapping[str, Any], arm: Arm) -> Diagnosis:
    """The diagnosis whose first verdict says which modules in float32 cured the captured step."""
    if diagnosis.verdict is None:
        return diagnosis
    what = "smallest part that has to compute in float32" if island["complete"] else "part that cures it in float32"
    modules = ", ".join(f"{part['path']} ({part['kind']})" for part in island["parts"])
    said = Evidence(what, modules, arm=arm.name, step=island["iteration"])
    return _of_first(diagnosis, evidence=(*diagnosis.verdict.evidence, said))


def _of_first(diagnosis: Diagnosis, **changes: Any) -> Diagnosis:
    first = [dataclasses.replace(verdict, **changes) for verdict in diagnosis.verdicts[:1]]
    return dataclasses.replace(diagnosis, verdicts=(*first, *diagnosis.verdicts[1:]))
