"""The files of a folder are the commands of a group, each imported only when it is run."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from typing import IO, Any

import click

from mixprec.errors import MixprecError, UnknownNameError

__all__ = ["CommandFolder", "CouldNotRun"]


class CouldNotRun(click.ClickException):
    """An error of ours as the user sees it: one message on stderr, exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message on stderr."""
        click.echo(f"mixprec: error: {self.format_message()}", err=True, file=file)


class CommandFolder(click.Group):
    """A group whose commands are the modules of the package `folder` that do not start with an underscore."""

    def __init__(self, *args: Any, folder: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.folder = folder

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Command names in alphabetical order; nothing is imported."""
        return sorted(_files(self.folder))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that file, imported now; None where there is no such file."""
        if cmd_name not in _files(self.folder):
            return None
        module = importlib.import_module(f"{self.folder}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        command.name = cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with suggestions for a name that is no command."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise UnknownNameError("command", args[0], self.list_commands(ctx), "`mixprec --help` describes them.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first sentence of each file's docstring."""
        rows = [(name, _first_sentence(path)) for name, path in sorted(_files(self.folder).items())]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run; an error of ours becomes one message and exit code 2."""
        try:
            return super().invoke(ctx)
        except MixprecError as error:
            raise CouldNotRun(str(error)) from error


def _files(folder: str) -> dict[str, Path]:
    """Command name to file, from a listing of the package's folder."""
    (root, *_) = importlib.import_module(folder).__path__
    names = [info.name for info in pkgutil.iter_modules([root]) if not info.name.startswith("_")]
    return {name.replace("_", "-"): Path(root, f"{name}.py") for name in names}


def _first_sentence(path: Path) -> str:
    """The first line of a module's docstring, without its full stop and without importing it."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")
