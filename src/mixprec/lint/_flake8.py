"""The same findings in flake8: `pip install mixprec flake8`, nothing to configure.

flake8's own `select`, `ignore` and `# noqa: MP002` hold, and so do `pyproject.toml` and our ignore comments.
Source: https://flake8.pycqa.org/en/latest/plugin-development/
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mixprec._version import __version__
from mixprec.lint._config import LintConfig, find_config
from mixprec.lint._engine import UNREADABLE
from mixprec.lint._lint_file import lint_text

__all__ = ["Plugin"]


class Plugin:
    """What flake8 makes for each file: it gives the tree, the name and the lines, and takes places with messages."""

    name: ClassVar[str] = "mixprec"
    version: ClassVar[str] = __version__

    def __init__(self, tree: ast.AST, filename: str = "stdin", lines: Sequence[str] = ()) -> None:
        self.filename = filename
        self.lines = lines

    def run(self) -> Iterator[tuple[int, int, str, type[Any]]]:
        """Line (from 1), column (from 0), text that starts with the code, and the plugin, without syntax errors."""
        source = "".join(self.lines)
        for finding in lint_text(source, self.filename, _config(str(Path(self.filename).parent))):
            if finding.code != UNREADABLE:
                where = finding.location
                text = f"{finding.code} {finding.name}: {finding.message}"
                yield where.line or 1, (where.column or 1) - 1, text, type(self)


@functools.lru_cache(maxsize=256)
def _config(folder: str) -> LintConfig:
    return find_config(Path(folder))
