"""Turn a recorded run into a page that works without a network.

The run is the folder that a monitor wrote (`mixprec run`, or `Monitor(folder=...)`).
"""

from __future__ import annotations

from pathlib import Path

import click

from mixprec.cli._options import format_option
from mixprec.monitor import read_run
from mixprec.report import json, text
from mixprec.report.html import run_page
from mixprec.report.run_summary import RunSummary, summarise

__all__ = ["command"]


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", "out", type=click.Path(path_type=Path, dir_okay=False), help="Page to write  [RUN/report.html]"
)
@format_option()
@click.pass_context
def command(context: click.Context, run: Path, out: Path | None, output: str) -> None:
    """Write a page about the recorded RUN, and print what it says first.

    Exits with 1 if the run raised alerts.
    """
    summary = summarise(read_run(run))
    page = out or run / "report.html"
    page.write_text(run_page(summary, page), encoding="utf-8")
    if output == "json":
        findings = tuple(finding for _, _, finding in summary.findings)
        click.echo(json.findings_document(findings, page=str(page), differences=summary.differences, **summary.data))
    else:
        _print(summary, page)
    context.exit(1 if summary.findings or summary.differences else 0)


def _print(summary: RunSummary, page: Path) -> None:
    screen = text.console()
    screen.print(summary.title, style="bold")
    screen.print(summary.lead)
    for difference in summary.differences:
        screen.print(difference)
    for rank, step, finding in summary.findings:
        screen.print(f"\nstep {step}, rank {rank}")
        screen.print(text.finding_text(finding))
    screen.print(f"The page: {page}", soft_wrap=True)
