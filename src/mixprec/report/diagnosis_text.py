"""What the doctor found, for people: the verdict first, then what it rests on, what was ruled out, and what to do."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mixprec.doctor import Arm, Diagnosis
from mixprec.records import Evidence, Location, Severity, Verdict
from mixprec.report import text

__all__ = [
    "COLUMNS",
    "ENDED",
    "arm_line",
    "arm_rows",
    "evidence_line",
    "print_diagnosis",
    "value_of",
]

COLUMNS = ("arm", "changed", "ended", "steps", "skipped", "loss", "s")
ENDED = {
    "finished": "finished",
    "stopped": "enough seen",
    "crashed": "raised",
    "timed_out": "time limit",
    "killed": "killed",
    "interrupted": "interrupted",
}


def print_diagnosis(screen: Console, diagnosis: Diagnosis) -> None:
    """Print it all; the first line says what came of it."""
    screen.print(_headline(diagnosis), soft_wrap=True)
    if diagnosis.interrupted:
        screen.print("Interrupted: what follows comes from the arms until then.", style="yellow")
    for number, verdict in enumerate(diagnosis.verdicts):
        _print_verdict(screen, verdict, also=number > 0)
    if diagnosis.problem is not None and not diagnosis.verdicts:
        screen.print(diagnosis.problem, soft_wrap=True)
    if diagnosis.open_question is not None:
        screen.print(text.indented(f"What would decide: {diagnosis.open_question}"))
    if diagnosis.patch is not None:
        _section(screen, "patch")
        screen.print(text.indented(diagnosis.patch.about))
        screen.print(diagnosis.patch.diff.rstrip(), soft_wrap=True)
    if diagnosis.looked_at and not diagnosis.verdicts and diagnosis.problem is None:
        _section(screen, "looked at")
        screen.print(text.pairs([(fact.what, value_of(fact)) for fact in diagnosis.looked_at]))
    if diagnosis.examination.arms:
        _section(screen, "arms")
        screen.print(text.table(COLUMNS, arm_rows(diagnosis), right=(3, 4, 5, 6)))
    _print_lint(screen, diagnosis)


def _headline(diagnosis: Diagnosis) -> Text:
    script = shlex.join(diagnosis.examination.command)
    first = diagnosis.verdict
    if first is not None:
        style = text.STYLES[first.severity]
        named = (f"{first.code} {first.name}", style)
        return Text.assemble(named, ": ", _where(diagnosis.examination.command, first.location))
    if diagnosis.problem is not None:
        return Text.assemble(("could not be examined", "bold red"), f": {script}")
    if diagnosis.open_question is not None:
        return Text.assemble(("it fails, and no cause was found", "bold red"), f": {script}")
    return Text.assemble(("nothing wrong", "bold green"), f": {script}")


def _where(command: Sequence[str], at: Location) -> str:
    """The command and the place; of a place in the script itself the place alone, with what the script was given."""
    place = _near(at)
    if at.file is None or os.path.realpath(at.file) != os.path.realpath(command[0]):
        return f"{shlex.join(command)} at {place}" if place else shlex.join(command)
    given = f", run with {shlex.join(command[1:])}" if command[1:] else ""
    return place + given


def _near(at: Location) -> str:
    """A place, its file named from the working folder where it lies below it."""
    file = None if at.file is None else Path(at.file)
    if file is not None and file.is_absolute() and file.is_relative_to(Path.cwd()):
        at = dataclasses.replace(at, file=str(file.relative_to(Path.cwd())))
    return text.place(at)


def _section(screen: Console, title: str) -> None:
    screen.print()
    screen.print(title, style="bold")


def _print_verdict(screen: Console, verdict: Verdict, *, also: bool) -> None:
    if also:
        where = _near(verdict.location)
        screen.print()
        screen.print(
            Text.assemble(
                (f"also {verdict.code} {verdict.name}", text.STYLES[verdict.severity]), f" at {where}" if where else ""
            ),
            soft_wrap=True,
        )
    screen.print(text.indented(verdict.message))
    screen.print(text.indented(f"{verdict.confidence.value}; {verdict.severity.value}"))
    for title, facts in (("evidence", verdict.evidence), ("ruled out", verdict.ruled_out)):
        if facts:
            screen.print(f"  {title}", style="bold")
            for fact in facts:
                screen.print(f"    {evidence_line(fact)}", soft_wrap=True)
    if verdict.fix is not None:
        screen.print("  fix", style="bold green")
        screen.print(text.indented("  " + verdict.fix.text.replace("\n", "\n  ")))
    if verdict.fix_tried is not None:
        screen.print(f"  tried: {evidence_line(verdict.fix_tried)}", soft_wrap=True)
    screen.print(f"  read: mixprec explain {verdict.code}", style="dim")


def evidence_line(fact: Evidence) -> str:
    """`largest activation = 2.3e+05 (arm fp32, step 3)`."""
    context = [f"arm {fact.arm}" if fact.arm else "", "" if fact.step is None else f"step {fact.step}"]
    said = ", ".join(part for part in context if part)
    return f"{fact.what} = {value_of(fact)}{f' ({said})' if said else ''}"


def value_of(fact: Evidence) -> str:
    """The value with its unit; shares as percentages."""
    if fact.unit == "share" and isinstance(fact.value, (int, float)):
        return f"{100 * fact.value:.3g} %"
    value = f"{fact.value:.4g}" if isinstance(fact.value, float) else str(fact.value)
    return f"{value} {fact.unit}".rstrip()


def arm_rows(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    """One row per arm, as the table's columns say."""
    return [tuple(arm_line(arm)) for arm in diagnosis.examination.arms]


def arm_line(arm: Arm) -> Iterator[str]:
    """Name, what it changed, how it ended, steps, skipped steps, last loss, seconds."""
    yield arm.name
    yield ", ".join(map(str, arm.interventions)) or "nothing"
    yield ENDED.get(arm.ended, arm.ended)
    steps = [step for step in arm.steps if step.finished]
    yield str(len(steps))
    yield str(sum(step.skipped for step in steps))
    losses = [step.loss for step in arm.steps if step.loss is not None]
    yield f"{losses[-1]:.4g}" if losses else "-"
    yield f"{arm.seconds:.1f}"


def _print_lint(screen: Console, diagnosis: Diagnosis) -> None:
    """What lint says of the same files, where no verdict says it already."""
    said = {verdict.code for verdict in diagnosis.verdicts}
    rest = [f for f in diagnosis.examination.lint if f.code not in said and f.severity is not Severity.INFO]
    if rest:
        _section(screen, "lint, in the same files")
        for finding in rest:
            screen.print(f"  {_near(finding.location)}: {finding.code} {finding.message}", soft_wrap=True)
