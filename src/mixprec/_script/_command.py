"""What the user would have typed after `python`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from mixprec.errors import InvalidValueError

__all__ = ["Command"]


@dataclass(frozen=True)
class Command:
    """A script with its arguments, `("train.py", "--lr", "1")`, or with `module=True` what stands after `python -m`.

    Raises: InvalidValueError where `argv` is empty.
    """

    argv: tuple[str, ...]
    module: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", tuple(map(str, self.argv)))
        if not self.argv:
            raise InvalidValueError("argv", self.argv, "a script (or with -m a module) and its arguments")

    @property
    def name(self) -> str:
        """The script as given, or the module's dotted name."""
        return self.argv[0]

    @property
    def script(self) -> Path | None:
        """The script's path as given; None for a module."""
        return None if self.module else Path(self.name)

    def line(self, python: str | None = None) -> list[str]:
        """The command line; `python` is the interpreter, by default the running one."""
        return [python or sys.executable, *(["-m"] if self.module else []), *self.argv]

    def check(self, cwd: Path | None = None) -> None:
        """Raises: InvalidValueError where the script is no file (looked up from `cwd`)."""
        if self.script is not None and not (Path(cwd or ".") / self.script).is_file():
            raise InvalidValueError("script", self.name, "an existing Python file (use -m for a module)")

    def __str__(self) -> str:
        return shlex.join(["python", *self.line()[1:]])
