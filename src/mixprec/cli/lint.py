"""Name the misuse of mixed precision in scripts, notebooks and configuration before the run.

Nothing that is linted is imported, and torch is not either.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mixprec.causes import find_cause
from mixprec.cli._options import format_option
from mixprec.errors import InvalidValueError
from mixprec.lint._baseline import Baseline, read_baseline
from mixprec.lint._catalogue import all_rules
from mixprec.lint._config import ORDER, LintConfig, expand, find_config
from mixprec.lint._files import Discovery, discover
from mixprec.lint._lint_file import FileResult, Fixing, lint_bytes
from mixprec.lint._run import Report, entries, run
from mixprec.records import Finding, Location, Severity
from mixprec.report import findings_text, github, json, sarif, text

__all__ = ["command"]

STDIN = "-"
BASELINE = "mixprec-baseline.json"


def _explain(context: click.Context, parameter: click.Parameter, code: str | None) -> None:
    """Print what is known about a code and stop."""
    if code is None or context.resilient_parsing:
        return
    from mixprec.cli import explain

    cause = find_cause(code)
    context.invoke(explain.command, what=cause.code, output="text")
    screen = text.console()
    for rule in all_rules():
        if rule.code == cause.code:
            screen.print()
            screen.print(f"lint: {rule.severity.value}; fix: {rule.fix_safety.value}", style="bold")
            for title, example in (("instead of", rule.bad), ("write", rule.good)):
                screen.print(f"{title}:", style="bold")
                screen.print(example.strip("\n"), soft_wrap=True)
    context.exit(0)


def _serve(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Serve an editor until it hangs up."""
    if not wanted or context.resilient_parsing:
        return
    from mixprec.cli._lsp import server

    server().start_io()
    context.exit(0)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@format_option("sarif", "github")
@click.option("--fix", is_flag=True, help="Apply the safe fixes and report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix, apply all fixes, also those that want a second look.")
@click.option("--diff", is_flag=True, help="Print all fixes as a diff and change nothing.")
@click.option(
    "--select", multiple=True, metavar="CODES", help="Look for these only: codes, beginnings of codes, names."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Do not look for these, besides what is configured.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave files out, in the syntax of .gitignore.")
@click.option("--baseline", metavar="FILE", help="Report only what is not in this file.")
@click.option("--write-baseline", is_flag=True, help=f"Write what is found to the baseline ({BASELINE} by default).")
@click.option("--statistics", is_flag=True, help="Count findings by code instead of listing them.")
@click.option(
    "--level",
    type=click.Choice([severity.value for severity in reversed(ORDER)]),
    help="The least severity to report; warning by default, and everything of what --select names.",
)
@click.option("--explain", metavar="CODE", is_eager=True, expose_value=False, callback=_explain, help="Explain a code.")
@click.option(
    "--language-server",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_serve,
    help="Serve an editor on standard input and output (needs the extra lsp).",
)
@click.option("--stdin-filename", metavar="PATH", default="stdin.py", help="What to call the text read for PATH -.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at most; one per CPU by default.")
@click.option("--no-config", is_flag=True, help="Do not read pyproject.toml.")
@click.pass_context
def command(context: click.Context, /, paths: tuple[str, ...], output: str, **options: Any) -> None:
    """Check scripts, notebooks and configuration below PATH (the current folder by default).

    Exit codes: 0 nothing found, 1 findings, 2 could not run: an option or the configuration is wrong, a path does not
    exist, or not one file could be read. PATH - reads one file from standard input.
    """
    if options["unsafe_fixes"] and not options["fix"]:
        raise click.UsageError("--unsafe-fixes goes with --fix; --diff shows every fix already.", context)
    if STDIN in paths and (len(paths) > 1 or options["fix"]):
        raise click.UsageError("- stands alone and is not written back; --diff shows its fixes.", context)
    given = paths or (".",)
    config = _configure(given, options)
    baseline = None if options["write_baseline"] else _baseline(config)
    report = _lint(given, config, baseline, options)
    if options["write_baseline"]:
        _write_baseline(report, config)
        return
    if options["diff"]:
        _print_diff(report)
    elif output == "text":
        _print_text(report, statistics=options["statistics"])
    else:
        click.echo(_render(report, config, output), nl=output != "github" or bool(report.findings))
    context.exit(_exit_code(report))


def _configure(paths: tuple[str, ...], options: dict[str, Any]) -> LintConfig:
    """The project's options with those of the command line over them."""
    missing = [path for path in paths if path != STDIN and not os.path.exists(path)]
    if missing:
        raise InvalidValueError("PATH", missing[0], "a file or folder that exists")
    start = Path.cwd() if paths[0] == STDIN else Path(paths[0])
    config = LintConfig(Path.cwd()) if options["no_config"] else find_config(start)
    for selector in ("select", "ignore"):
        options[selector] = tuple(code for given in options[selector] for code in given.split(",") if code.strip())
    changes: dict[str, Any] = {
        "select": options["select"] or config.select,
        "ignore": config.ignore + options["ignore"],
        "exclude": config.exclude + options["exclude"],
    }
    if options["baseline"] is not None:
        changes["baseline"] = os.path.abspath(options["baseline"])
    if options["level"] is not None:
        changes["level"] = Severity(options["level"])
    expand([*changes["select"], *changes["ignore"]])
    return dataclasses.replace(config, **changes)


def _baseline(config: LintConfig) -> Baseline | None:
    return None if config.baseline is None else read_baseline(config.root / config.baseline)


def _write_baseline(report: Report, config: LintConfig) -> None:
    file = config.root / (config.baseline or BASELINE)
    found = entries(report.results, config)
    file.write_text(Baseline.of(entry for entry, _ in found).dumps(), encoding="utf-8")
    click.echo(f"Wrote {len(found)} findings to {file}.")


def _lint(paths: tuple[str, ...], config: LintConfig, baseline: Baseline | None, options: dict[str, Any]) -> Report:
    fixing = _fixing(options)
    if paths == (STDIN,):
        data = sys.stdin.buffer.read()
        result, _ = lint_bytes(data, options["stdin_filename"], config, fixing)
        found = entries([result], config)
        return Report((result,), result.findings if baseline is None else baseline.new(found))
    how = Discovery(config.root, config.exclude, config.respect_gitignore)
    files = discover((Path(path) for path in paths), how)
    return run(files, config, baseline=baseline, fixing=fixing, jobs=options["jobs"])


def _fixing(options: dict[str, Any]) -> Fixing | None:
    if options["diff"]:
        return Fixing(unsafe=True)
    return Fixing(unsafe=options["unsafe_fixes"], write=True) if options["fix"] else None


def _exit_code(report: Report) -> int:
    return 2 if report.nothing_read else 1 if report.findings else 0


def _print_text(report: Report, *, statistics: bool) -> None:
    screen = text.console()
    if statistics and report.findings:
        screen.print(findings_text.statistics(report.findings))
    elif not statistics:
        findings_text.print_findings(screen, report.findings, _source_of(report))
    screen.print(" ".join(_summary(report)), soft_wrap=True)


def _source_of(report: Report) -> findings_text.SourceOf:
    by_path = {result.path: result for result in report.results}

    def source_of(location: Location) -> str | None:
        result = by_path.get(location.file or "")
        return None if result is None else result.sources.get(location.cell)

    return source_of


def _summary(report: Report) -> Iterator[str]:
    """What was done, in sentences."""
    number = len(report.results)
    yield f"{number} file{'' if number == 1 else 's'}: {findings_text.count(report.findings)}."
    fixed = sum(len(result.applied) for result in report.results)
    if fixed:
        yield f"{fixed} fixed."
    if report.below:
        yield f"{report.below} below the level; --level info reports everything."
    if report.silenced:
        yield f"{report.silenced} silenced by comments."
    if report.known:
        yield f"{report.known} known from the baseline."
    if report.gone:
        yield f"{report.gone} of the baseline are gone; --write-baseline drops them."
    fixable = sum(finding.fix is not None and finding.fix.safe for finding in report.findings)
    if fixable:
        yield f"--fix repairs {fixable}; --diff shows every fix."


def _print_diff(report: Report) -> None:
    """A diff that `patch` takes, each file's fixes named above it."""
    for result in report.results:
        if result.before == result.after:
            continue
        for finding in result.applied:
            click.echo(_fix_line(finding))
        click.echo("".join(_diff(result)), nl=False)


def _fix_line(finding: Finding) -> str:
    safety = "safe" if finding.fix is not None and finding.fix.safe else "look twice"
    fix = "" if finding.fix is None else finding.fix.text
    return f"# {text.place(finding.location)}: {finding.code} ({safety}): {fix}"


def _diff(result: FileResult) -> Iterator[str]:
    before, after = result.before.splitlines(keepends=True), result.after.splitlines(keepends=True)
    name = Path(result.path).as_posix()
    for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _render(report: Report, config: LintConfig, output: str) -> str:
    if output == "github":
        return github.workflow_commands(report.findings)
    if output == "sarif":
        marks = {id(finding): entry.fingerprint for entry, finding in entries(report.results, config)}
        listed = {position: marks[id(finding)] for position, finding in enumerate(report.findings)}
        return sarif.sarif(report.findings, listed)
    return json.findings_document(report.findings, files=len(report.results), fixed=_fixed(report), **_counts(report))


def _fixed(report: Report) -> list[Finding]:
    return [finding for result in report.results for finding in result.applied]


def _counts(report: Report) -> dict[str, int]:
    return {"below": report.below, "silenced": report.silenced, "known": report.known, "gone": report.gone}
