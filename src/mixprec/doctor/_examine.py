"""An examination runs the script in arms until what is undecided is decided, then says what it came to.

Which arm comes next and what the arms mean are pure functions (`_plan`, `judges`); here they are run, in the time that
there is, and whatever becomes of one, what it left behind counts.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from mixprec._script import Command
from mixprec.doctor._arm import Arm, ArmPlan, Examination, Intervention
from mixprec.doctor._conclude import conclude, next_plan
from mixprec.doctor._diagnosis import Diagnosis
from mixprec.doctor._lint import files_of, lint_files
from mixprec.doctor._run_arm import Script, run_arm
from mixprec.doctor._trials import tried

__all__ = ["Progress", "examine_script"]

STEPS = 200
"""Attempts of each optimizer that an arm watches."""

PATIENCE = 6.0
"""Seconds until which the first arm goes on, where its steps take less: a second training may follow the first."""

MOST_ARMS = 24
"""An examination that asks for more arms than this is going round in circles."""


class Progress(Protocol):
    """Hears how an examination goes on."""

    def begins(self, plan: ArmPlan) -> None:
        """An arm is about to run."""

    def ended(self, arm: Arm) -> None:
        """An arm has run."""


class _Silent:
    def begins(self, plan: ArmPlan) -> None:
        pass

    def ended(self, arm: Arm) -> None:
        pass


def examine_script(
    command: Command,
    *,
    steps: int | None = None,
    time_limit: float = 600.0,
    fast: bool = False,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    on_output: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Examines `command`, which runs unchanged, several times, in processes of its own.

    steps: attempts of each optimizer after which an arm ends; None: 200, and up to 600 where they take less than 6 s.
    time_limit: seconds for everything. fast: only the arms that most causes need, no search for a patch. cwd, env: the
    script's. stdin: text that every arm reads. Ctrl-C ends the examination with what is known until then
    (`Diagnosis.interrupted`).

    Raises: InvalidValueError where the script does not exist.

    **Cost**: 4 to 12 runs of the script, each with its own import of torch.
    """
    command.check(Path(cwd) if cwd is not None else None)
    script = Script(command, cwd, env, stdin, on_output)
    clock = _Clock(time_limit)
    patience = PATIENCE if steps is None else 0.0
    known = Examination(command.argv, wanted_steps=steps or STEPS, patience=patience, seconds_left=time_limit)
    heard = progress or _Silent()
    known, interrupted = _run_arms(script, known, clock, fast, heard)
    diagnosis = conclude(known)
    if not fast and not interrupted:
        diagnosis = tried(diagnosis, _Bench(script, diagnosis.examination, clock, heard))
    return dataclasses.replace(diagnosis, interrupted=diagnosis.interrupted or interrupted, seconds=clock.spent)


def _run_arms(
    script: Script, known: Examination, clock: _Clock, fast: bool, progress: Progress
) -> tuple[Examination, bool]:
    """Runs arms until none is wanted; whether Ctrl-C ended it, in an arm or between two."""
    try:
        while len(known.arms) < MOST_ARMS and clock.left > 0:
            plan = next_plan(known, fast)
            if plan is None:
                break
            progress.begins(plan)
            arm = run_arm(script, _bounded(plan, known), clock.share(known))
            known = dataclasses.replace(known.with_arm(arm), seconds_left=clock.left)
            progress.ended(arm)
            if arm.ended == "interrupted":
                return known, True
            if len(known.arms) == 1:
                seen = max((step.index + 1 for step in arm.steps), default=0)
                known = dataclasses.replace(
                    known,
                    lint=lint_files(files_of(_file(script), arm)),
                    wanted_steps=max(known.wanted_steps, seen),
                )
    except KeyboardInterrupt:
        return known, True
    return known, False


def _file(script: Script) -> Path | None:
    path = script.command.script
    return None if path is None else Path(script.cwd or ".") / path


def _bounded(plan: ArmPlan, known: Examination) -> ArmPlan:
    return dataclasses.replace(plan, steps=min(plan.steps or known.wanted_steps, known.wanted_steps))


class _Clock:
    """The time that an examination may take, and what of it an arm gets."""

    def __init__(self, limit: float) -> None:
        self._began = time.monotonic()
        self._limit = limit

    @property
    def spent(self) -> float:
        """Seconds since the examination began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds until it must be over."""
        return self._limit - self.spent

    def share(self, known: Examination) -> float:
        """The first arm gets 40 % of the limit; each later one thrice what the first took, and at least 20 s."""
        if not known.arms:
            return 0.4 * self._limit
        return max(1.0, min(self.left, max(20.0, 3 * known.arms[0].seconds)))


class _Bench:
    """Runs changed scripts in what is left of the time."""

    def __init__(self, script: Script, known: Examination, clock: _Clock, progress: Progress) -> None:
        self._script = script
        self._known = known
        self._clock = clock
        self._progress = progress

    def run(self, plan: ArmPlan, replace: Mapping[str, str]) -> Arm:
        """One arm with other texts in place."""
        self._progress.begins(plan)
        arm = run_arm(dataclasses.replace(self._script, replace=replace), plan, self.share())
        if replace:
            arm = dataclasses.replace(arm, interventions=(*arm.interventions, Intervention("patch")))
        self._progress.ended(arm)
        return arm

    def allows(self, seconds: float) -> bool:
        """Whether so many seconds are left."""
        return self._clock.left >= seconds

    def share(self) -> float:
        """What a later arm gets."""
        return self._clock.share(self._known)
