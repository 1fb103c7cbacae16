"""Changes are run, the smallest first, until one cures; modules are searched where no change of code does."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from mixprec.doctor._arm import Arm, ArmPlan, Intervention
from mixprec.doctor._diagnosis import Diagnosis
from mixprec.doctor._module_patch import module_changes
from mixprec.doctor._patches import Change
from mixprec.doctor._try import (
    MOST,
    helped,
    island_of,
    near,
    plan_for,
    search_plan,
    settled,
    wants_island,
    wider,
    with_island,
    with_modules,
    with_patch,
)

__all__ = ["Bench", "modules_tried", "tried"]


class Bench(Protocol):
    """Runs arms, with other texts for some files, in the time that there is."""

    def run(self, plan: ArmPlan, replace: Mapping[str, str]) -> Arm:
        """One arm; with other texts its intervention is "patch"."""

    def allows(self, seconds: float) -> bool:
        """Whether there is time for a run that takes so long."""

    def share(self) -> float:
        """Seconds that one arm may take."""


def tried(diagnosis: Diagnosis, bench: Bench) -> Diagnosis:
    """The diagnosis with what became of the changes that may cure its first verdict, and the first that did."""
    trials = _Trials(diagnosis, bench)
    try:
        if trials.any_helps(itertools.islice(near(diagnosis), MOST)) or trials.modules_help():
            return trials.diagnosis
        if not trials.found_modules:  # else what calls them is no smaller, and was not the cure
            trials.any_helps(itertools.islice(wider(diagnosis), MOST))
    except KeyboardInterrupt:
        return dataclasses.replace(trials.diagnosis, interrupted=True)
    return trials.diagnosis


def modules_tried(diagnosis: Diagnosis, bench: Bench) -> Diagnosis:
    """The same where there is no text that could be changed: modules are put into float32 from outside."""
    trials = _Trials(diagnosis, bench, writes=False)
    try:
        trials.modules_help()
    except KeyboardInterrupt:
        return dataclasses.replace(trials.diagnosis, interrupted=True)
    return trials.diagnosis


class _Trials:
    """The diagnosis as it is known so far; `writes`: whether there is a text to change."""

    def __init__(self, diagnosis: Diagnosis, bench: Bench, writes: bool = True) -> None:
        self._writes = writes
        self.diagnosis = diagnosis
        self._bench = bench
        self._known = diagnosis.examination
        self._patches = 0
        self.found_modules = False

    def any_helps(self, changes: Iterable[Change]) -> bool:
        """Whether one of the changes does, which is then the patch."""
        return any(self._helps(change) for change in changes)

    def modules_help(self) -> bool:
        """Whether float32 in some modules does; where a patched run fails at another place, there is searched too."""
        if not wants_island(self.diagnosis):
            return False
        arm, texts, before = self._known.arms[0], dict[str, str](), list[str]()
        for number in range(1, MOST + 1):
            island, searched = self._searched(arm, number, texts)
            if island is None or any(path in before for path in island["modules"]):
                return False
            self.found_modules = True
            self.diagnosis = with_island(self.diagnosis, island, searched)
            change = next(module_changes(island, texts, before), None) if self._writes else None
            if change is None or (texts and _real(change.file) not in map(_real, texts)):
                return number == 1 and self._helps_unwritten(island)
            if self._helps(change):
                return True
            before += island["modules"]
            arm, texts = self.diagnosis.examination.arms[-1], {change.file: change.after}
        return False

    def _searched(self, arm: Arm, number: int, texts: Mapping[str, str]) -> tuple[Mapping[str, Any] | None, Arm]:
        """The modules that are enough in the step in which `arm` failed."""
        first = self._known.arms[0]
        budget = max(3.0, self._bench.share() - 1.5 * first.seconds)
        plan = search_plan(self._known, arm, number, budget)
        if plan is None or not self._bench.allows(1.5 * first.seconds):
            return None, arm
        searched = self._run(plan, texts)
        return island_of(searched), searched

    def _helps(self, change: Change) -> bool:
        """Whether the run with the change is healthy; False where there is no time for it."""
        if not self._bench.allows(1.5 * self._known.arms[0].seconds):
            return False
        self._patches += 1
        plan = plan_for(self._known, f"patch-{self._patches}")
        arm = self._run_fairly(plan, {change.file: change.after})
        if not helped(self._known, self.diagnosis.verdict, arm):
            return False
        self.diagnosis = with_patch(self.diagnosis, change, arm)
        return True

    def _helps_unwritten(self, island: Mapping[str, Any]) -> bool:
        """The same of modules that no variable of the script leads to: they are put into float32 from outside."""
        plan = plan_for(self._known, "island-run")
        plan = dataclasses.replace(plan, interventions=(Intervention("fp32_modules", list(island["modules"])),))
        if not self._bench.allows(1.5 * self._known.arms[0].seconds):
            return False
        arm = self._run_fairly(plan, {})
        if not helped(self._known, self.diagnosis.verdict, arm):
            return False
        self.diagnosis = with_modules(self.diagnosis, island, arm)
        return True

    def _run_fairly(self, plan: ArmPlan, texts: Mapping[str, str]) -> Arm:
        """A run that is only not like FP32, and skipped steps at its start, runs again from the scale that it found."""
        arm = self._run(plan, texts)
        scale = settled(arm)
        healthy = helped(self._known, self.diagnosis.verdict, arm)
        if healthy or scale is None or not self._bench.allows(1.5 * self._known.arms[0].seconds):
            return arm
        start = (*plan.interventions, Intervention("init_scale", scale))
        return self._run(dataclasses.replace(plan, name=f"{plan.name}-settled", interventions=start), texts)

    def _run(self, plan: ArmPlan, texts: Mapping[str, str]) -> Arm:
        arm = self._bench.run(plan, texts)
        self.diagnosis = dataclasses.replace(self.diagnosis, examination=self.diagnosis.examination.with_arm(arm))
        if arm.ended == "interrupted":
            raise KeyboardInterrupt
        return arm


def _real(path: str) -> str:
    return os.path.realpath(path)
