"""Say why memory did not drop and the speed-up never came, from a few steps of a script.

The script runs unchanged in a process of its own and is ended when enough was seen.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import click

from mixprec._script import Command
from mixprec.audit import AuditReport
from mixprec.audit._script import audit_script
from mixprec.cli._options import format_option
from mixprec.records import Location
from mixprec.report import text
from mixprec.report.audit_json import audit_document
from mixprec.report.audit_text import print_audit

__all__ = ["command"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--module", "-m", "module", is_flag=True, help="SCRIPT is a module, as after `python -m`.")
@click.option("--measure", is_flag=True, help="Also measure a few steps in each other precision.")
@click.option("--device", "accelerator", help="Forecast for this accelerator (see mixprec device).")
@click.option("--seconds", type=float, default=120.0, show_default=True, help="End the script after this long.")
@click.option("--output", "-o", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@format_option("html")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    module: bool,
    measure: bool,
    accelerator: str | None,
    seconds: float,
    file: Path | None,
    output: str,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT with ARGUMENTS for a few steps and say where memory and time go.

    Exit codes: 0 nothing found, 1 findings at warning or above, 2 could not run.
    """
    report = audit_script(
        Command((script, *arguments), module), seconds=seconds, measure=measure, accelerator=accelerator
    )
    if output == "text":
        with file.open("w", encoding="utf-8") if file is not None else contextlib.nullcontext() as target:
            print_audit(text.console(target), report, _source)
    else:
        _write(audit_document(report) if output == "json" else _page(report), file)
    context.exit(1 if report.at_fault else 0)


def _write(document: str, file: Path | None) -> None:
    if file is None:
        click.echo(document)
    else:
        file.write_text(document + "\n", encoding="utf-8")


def _page(report: AuditReport) -> str:
    from mixprec.report.html import audit_page  # needs the report extra, which text and JSON do without

    return audit_page(report)


@functools.lru_cache(maxsize=32)
def _read(file: str) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(file).read_text(encoding="utf-8")
    return None


def _source(location: Location) -> str | None:
    return None if location.file is None else _read(location.file)
