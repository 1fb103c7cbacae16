"""Find the cause of a failing training run by controlled experiments on the unmodified script.

The doctor's own process never imports torch; the arms do.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from mixprec._script import Command
from mixprec.cli._options import format_option
from mixprec.doctor import Arm, ArmPlan, Diagnosis, examine_script
from mixprec.report import text
from mixprec.report.diagnosis_json import diagnosis_document
from mixprec.report.diagnosis_text import ENDED, print_diagnosis

__all__ = ["command"]


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--module", "-m", "module", is_flag=True, help="SCRIPT is a module, as after `python -m`.")
@click.option(
    "--steps",
    type=click.IntRange(1),
    help="Optimizer steps per arm.  [default: 200, up to 600 of those that take 6 s]",
)
@click.option("--time", "limit", default="10m", show_default=True, help="Time for everything: 90, 90s, 10m, 1h.")
@click.option("--fast", is_flag=True, help="Only the arms that most causes need, and no search for a patch.")
@click.option(
    "--stdin", "given", type=click.Path(exists=True, dir_okay=False), help="What each arm reads as its input."
)
@click.option("--show-output", is_flag=True, help="Pass the script's output on to stderr.")
@click.option("--output", "-o", "target", type=click.Path(dir_okay=False), help="Write the report to this file.")
@format_option("html")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, required=True, metavar="SCRIPT [ARGS]...")
@click.pass_context
def command(
    context: click.Context,
    module: bool,
    steps: int | None,
    limit: str,
    fast: bool,
    given: str | None,
    show_output: bool,
    target: str | None,
    output: str,
    argv: tuple[str, ...],
) -> None:
    """Run SCRIPT several times, one thing changed in each run, and name what is wrong with it.

    The script is not changed, runs in processes of its own, and gets its arguments as they are; options of the doctor
    stand before SCRIPT. Ctrl-C ends the examination and reports what is known until then.

    Exit codes: 0 nothing wrong, 1 a cause was found, 2 the script could not be examined.
    """
    diagnosis = examine_script(
        Command(argv, module),
        steps=steps,
        time_limit=_seconds(limit),
        fast=fast,
        stdin=None if given is None else Path(given).read_text(encoding="utf-8", errors="replace"),
        on_output=_pass_on if show_output else None,
        progress=_progress(),
    )
    _write(diagnosis, output, target)
    context.exit(diagnosis.exit_code)


def _write(diagnosis: Diagnosis, form: str, target: str | None) -> None:
    """The report in `form`, to the file or to stdout."""
    if form == "text":
        if target is None:
            print_diagnosis(text.console(), diagnosis)
            return
        with open(target, "w", encoding="utf-8") as file:
            print_diagnosis(text.console(file), diagnosis)
        return
    if form == "json":
        document = diagnosis_document(diagnosis)
    else:
        from mixprec.report.html._diagnosis_view import diagnosis_page

        document = diagnosis_page(diagnosis)
    if target is None:
        click.echo(document)
    else:
        Path(target).write_text(document, encoding="utf-8")


def _seconds(limit: str) -> float:
    """`90`, `90s`, `10m` or `1h` in seconds."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(limit[-1:])
    try:
        seconds = float(limit[:-1]) * unit if unit else float(limit)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{limit!r} is not a time; write 90, 90s, 10m or 1h", param_hint="--time")
    return seconds


def _pass_on(piece: str) -> None:
    sys.stderr.write(piece)
    sys.stderr.flush()


def _progress() -> _Plain:
    screen = text.console(stderr=True)
    return _Spinning(screen) if screen.is_terminal else _Plain(screen)


class _Plain:
    """One line on stderr for each arm that has run."""

    def __init__(self, screen: Console) -> None:
        self.screen = screen

    def begins(self, plan: ArmPlan) -> None:
        """Says nothing."""

    def ended(self, arm: Arm) -> None:
        """One line."""
        changed = ", ".join(map(str, arm.interventions)) or "unchanged"
        how = ENDED.get(arm.ended, arm.ended)
        line = f"arm {arm.name} ({changed}): {how}, {len(arm.steps)} steps, {arm.seconds:.1f} s"
        self.screen.print(line, style="dim", soft_wrap=True)


class _Spinning(_Plain):
    """A line that turns while an arm runs."""

    def __init__(self, screen: Console) -> None:
        super().__init__(screen)
        self._live: Live | None = None

    def begins(self, plan: ArmPlan) -> None:
        """Shows the arm that runs."""
        changed = ", ".join(map(str, plan.interventions)) or "unchanged"
        began = time.strftime("%H:%M:%S")
        spinner = Spinner("dots", Text(f"arm {plan.name} ({changed}), since {began}"))
        self._live = Live(spinner, console=self.screen, transient=True, refresh_per_second=8)
        self._live.start()

    def ended(self, arm: Arm) -> None:
        """Replaces it by what came of it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        super().ended(arm)
