"""An arm is one run of the script with some things changed; what it left behind is read whatever became of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mixprec._script import Command, Outcome, run_script
from mixprec.doctor._arm import Arm, ArmPlan, read_arm

__all__ = ["Script", "run_arm"]

ENTRY = "mixprec.doctor._recorder:start"


@dataclass(frozen=True)
class Script:
    """What every arm of an examination has in common. `stdin` is text that each arm reads from its start."""

    command: Command
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    stdin: str | None = None
    on_output: Callable[[str], None] | None = None
    replace: Mapping[str, str] = field(default_factory=dict)
    """Files whose text is another one in this run, path to text."""


def run_arm(script: Script, plan: ArmPlan, timeout: float | None = None) -> Arm:
    """Runs one arm. What it was told to change and could not is in `Arm.uncontrolled`.

    Ctrl-C ends it, and what it left behind is returned as that of any other, `ended` "interrupted".
    """
    with tempfile.TemporaryDirectory(prefix="mixprec-arm-") as folder:
        outcome = _run(script, plan, timeout, folder)
        arm = read_arm(Arm(plan.name, plan.interventions), _lines(Path(folder)))
    if outcome is None:
        return replace(arm, ended="interrupted")
    return _ended(arm, outcome)


def _run(script: Script, plan: ArmPlan, timeout: float | None, folder: str) -> Outcome | None:
    """How the run ended; None after Ctrl-C."""
    try:
        return run_script(
            script.command,
            entry=ENTRY,
            options={
                "interventions": {item.name: item.value for item in plan.interventions},
                "steps": plan.steps,
                "patience": plan.patience,
                "trace": plan.trace,
            },
            cwd=script.cwd,
            env=_quiet(os.environ if script.env is None else script.env),
            stdin=script.stdin,
            timeout=timeout,
            on_output=script.on_output,
            folder=folder,
            replace=script.replace,
        )
    except KeyboardInterrupt:
        return None


def _quiet(env: Mapping[str, str]) -> dict[str, str]:
    """`env`, with OpenMP threads that sleep while they wait, where nothing is said of it: on a busy machine spinning
    ones make an arm 3 times slower (2 cores, load 11). No result depends on it.
    """
    return {"OMP_WAIT_POLICY": "passive", **env}


def _lines(folder: Path) -> Iterable[str]:
    """Every line of every process, ranks before the process that started them."""
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: (path.name.startswith("main"), path.name)):
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from file


def _ended(arm: Arm, outcome: Outcome) -> Arm:
    problems = tuple(f"the recorder did not start: {text.strip().splitlines()[-1]}" for text in outcome.errors)
    return replace(
        arm,
        ended=_how(arm, outcome),
        returncode=outcome.returncode,
        seconds=outcome.seconds,
        ranks=1 + max((step.rank for step in arm.steps), default=0),
        uncontrolled=arm.uncontrolled + problems,
        output_tail=outcome.output_tail,
    )


def _how(arm: Arm, outcome: Outcome) -> str:
    if outcome.timed_out:
        return "timed_out"
    if arm.crash is not None:
        return "crashed"
    if arm.facts.get("ended") == "stopped":
        return "stopped"
    return "killed" if outcome.returncode < 0 else "finished"
