"""Run a training script under a monitor, without a change to it.

The script runs as it would with `python SCRIPT ARGS`; what is recorded goes to a folder that `mixprec report` turns
into a page. The exit code is the script's own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from mixprec._script import Command, Outcome, run_script
from mixprec.cli._options import format_option
from mixprec.errors import InvalidValueError
from mixprec.monitor import LEVELS, Run, read_run
from mixprec.report import json, text

__all__ = ["command"]

ENTRY = "mixprec.monitor._attach:attach"
ENGINE_ENTRY = "mixprec.cli._engine:attach"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--module", "-m", "module", is_flag=True, help="SCRIPT is a module, as after `python -m`.")
@click.option(
    "--level", type=click.Choice([*LEVELS]), default="standard", show_default=True, help="How much to look at."
)
@click.option("--folder", type=click.Path(path_type=Path), help="Where to record  [default: runs/NAME-DATE-TIME]")
@click.option("--live", is_flag=True, help="Show loss, scale, norm and headroom while it runs.")
@click.option("--incidents/--no-incidents", default=True, help="Keep what is needed to replay a failing step.")
@click.option("--keep-step", "steps", type=int, multiple=True, help="Keep this step for replay too (counted from 0).")
@click.option("--engine", is_flag=True, help="Put mixprec's scaler and autocast in the place of PyTorch's.")
@click.option("--policy", help="With --engine: the policy of regions that give none, by name or as text.")
@format_option()
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    module: bool,
    level: str,
    folder: Path | None,
    live: bool,
    incidents: bool,
    steps: tuple[int, ...],
    engine: bool,
    policy: str | None,
    output: str,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with ARGS under a monitor. Exits with the script's own code.

    With `--format json` the script's output goes to standard error, and one object to standard output at the end.
    """
    if policy is not None and not engine:
        raise InvalidValueError("--policy", policy, "given together with --engine")
    where = folder or _fresh(script)
    as_json = output == "json"
    outcome = run_script(
        Command((script, *args), module=module),
        entry=ENGINE_ENTRY if engine else ENTRY,
        options={
            "policy": policy,
            "folder": str(where.resolve()),
            "level": level,
            "live": live,
            "incidents": incidents,
            "steps": list(steps),
        },
        stdin=sys.stdin if _has_descriptor() else None,
        capture=as_json,
        on_output=_to_stderr if as_json else None,
    )
    run = _recorded(where)
    if as_json:
        click.echo(json.document(**_document(where, run, outcome)))
    else:
        _print(where, run, outcome)
    context.exit(outcome.returncode if outcome.returncode >= 0 else 128 - outcome.returncode)


def _fresh(script: str) -> Path:
    return Path("runs", f"{Path(script).stem}-{time.strftime('%Y%m%d-%H%M%S')}")


def _has_descriptor() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.fileno() >= 0
    except (OSError, ValueError):
        return False


def _to_stderr(piece: str) -> None:
    click.echo(piece, nl=False, err=True)


def _recorded(folder: Path) -> Run | None:
    try:
        return read_run(folder)
    except InvalidValueError:
        return None


def _kept(folder: Path) -> list[Path]:
    """Steps that were kept for replay, the first one first."""
    return sorted(path.parent for path in (folder / "incidents").glob("[!.]*/incident.json"))


def _document(folder: Path, run: Run | None, outcome: Outcome) -> dict[str, object]:
    ranks = () if run is None else run.ranks
    return {
        "folder": str(folder),
        "returncode": outcome.returncode,
        "seconds": outcome.seconds,
        "ranks": [
            {
                "rank": rank.rank,
                "steps": len(rank.steps),
                "skipped": sum(record.skipped for record in rank.steps),
                "benign": sum(record.benign is True for record in rank.steps),
                "last_loss": rank.steps[-1].loss if rank.steps else None,
                "last_scale": rank.steps[-1].scale_after if rank.steps else None,
            }
            for rank in ranks
        ],
        "incidents": [str(path) for path in _kept(folder)],
        "findings": [finding for rank in ranks for _, finding in rank.findings],
        "errors": list(outcome.errors),
    }


def _print(folder: Path, run: Run | None, outcome: Outcome) -> None:
    screen = text.console(stderr=True)
    for error in outcome.errors:
        screen.print(f"mixprec: the monitor could not start:\n{error}", soft_wrap=True)
    if run is None:
        screen.print("mixprec: no optimizer step was seen, so nothing was recorded.", soft_wrap=True)
    else:
        screen.print(_summary(folder, run), soft_wrap=True)
    kept = _kept(folder)
    if kept:
        screen.print(
            f"mixprec: {len(kept)} step{'' if len(kept) == 1 else 's'} kept for replay. mixprec replay {kept[0]}",
            soft_wrap=True,
        )


def _summary(folder: Path, run: Run) -> str:
    steps = run.steps
    skipped = sum(record.skipped for record in steps)
    benign = sum(record.benign is True for record in steps)
    ranks = f" on each of {len(run.ranks)} ranks" if len(run.ranks) > 1 else ""
    return (
        f"mixprec: {len(steps)} steps{ranks}, {skipped} skipped ({benign} benign), "
        f"{len(run.ranks[0].findings)} alerts. mixprec report {folder}"
    )
