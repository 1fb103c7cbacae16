"""Move scripts from torch.cuda.amp, torch.amp or Apex to current PyTorch or to mixprec.

What is not understood is left as it is and named with its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixprec.cli._options import format_option
from mixprec.errors import InvalidValueError, MissingExtraError
from mixprec.report import json, text

if TYPE_CHECKING:
    from mixprec.migrate import Migration

__all__ = ["command"]


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "target", type=click.Choice(("torch", "mixprec")), default="torch", show_default=True)
@click.option("--opt-level", type=click.Choice(("O0", "O1")), help="What Apex's opt_level is where it is a variable.")
@click.option("--write", is_flag=True, help="Change the files; without it the changes are shown.")
@format_option()
@click.pass_context
def command(
    context: click.Context, paths: tuple[Path, ...], target: str, opt_level: str | None, write: bool, output: str
) -> None:
    """Rewrite the Python files in PATHS, or show how, as a diff.

    torch.cuda.amp and torch.cpu.amp become torch.amp or mixprec, torch.amp becomes mixprec, and Apex's amp either.
    Exit code 1: something is to be changed, or was not understood.
    """
    results = [(path, _migrated(path, target, opt_level)) for path in _files(paths)]
    if write:
        for path, result in results:
            if result.changed:
                path.write_bytes(result.after.encode())
    touched = [(path, result) for path, result in results if result.changed or result.refusals]
    if output == "json":
        click.echo(json.document(to=target, written=write, files=[_entry(*each) for each in touched]))
    else:
        _print(touched, len(results), write)
    open_ends = any(result.refusals or (result.changed and not write) for _, result in touched)
    context.exit(1 if open_ends else 0)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _migrated(path: Path, target: str, opt_level: str | None) -> Migration:
    try:
        from mixprec.migrate import migrate
    except ModuleNotFoundError as error:
        raise MissingExtraError("libcst", "migrate", "mixprec migrate") from error
    try:
        source = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError("PATH", str(path), "a Python file in UTF-8") from error
    try:
        return migrate(source, to=target, opt_level=opt_level)
    except InvalidValueError as error:
        raise InvalidValueError(str(path), error.value, error.accepted, error.advice) from error


def _entry(path: Path, result: Migration) -> dict[str, Any]:
    return {
        "path": str(path),
        "changed": result.changed,
        "diff": result.diff(path.as_posix()),
        "refusals": result.refusals,
        "notes": result.notes,
    }


def _print(touched: list[tuple[Path, Migration]], total: int, written: bool) -> None:
    screen = text.console()
    for path, result in touched:
        if not written:
            click.echo(result.diff(path.as_posix()), nl=False)
        for note in result.notes:
            screen.print(f"{path}:{note.line}: note: {note.text}", soft_wrap=True)
        for refusal in result.refusals:
            screen.print(f"{path}:{refusal.line}: left as it is: {refusal.what}: {refusal.why}.", soft_wrap=True)
    changed = sum(result.changed for _, result in touched)
    refused = sum(len(result.refusals) for _, result in touched)
    verb = "changed" if written else "to change; --write changes them" if changed else "to change"
    screen.print(f"{total} files read, {changed} {verb}; {refused} places not understood.", soft_wrap=True)
