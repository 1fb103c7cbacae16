"""Which files are linted: those that are named, and in named folders those that are somebody's own source.

A named file is always taken. In a folder, scripts (`.py`), notebooks (`.ipynb`) and configuration that speaks of
precision (`.json`, `.yaml`, `.yml`) are taken; virtual environments, caches, build products and what `.gitignore`
leaves out are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mixprec.lint._gitignore import Patterns

__all__ = ["CONFIGURATION", "NOTEBOOK", "SCRIPT", "Discovery", "discover"]

SCRIPT = frozenset({".py"})
NOTEBOOK = frozenset({".ipynb"})
CONFIGURATION = frozenset({".json", ".yaml", ".yml"})

SKIPPED = frozenset(
    {
        ".bzr",
        ".direnv",
        ".eggs",
        ".git",
        ".hg",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pyenv",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "__pypackages__",
        "_build",
        "build",
        "dist",
        "node_modules",
        "site-packages",
        "venv",
    }
)
"""Folder names that hold no source of the user's own."""

ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What lies at the top of a virtual environment, whatever its name is."""

CONFIGURATION_WORDS = (b"fp16", b"bf16", b"mixed_precision")
CONFIGURATION_LIMIT = 256 * 1024
"""Bytes; a larger JSON or YAML file is data."""


@dataclass(frozen=True)
class Discovery:
    """How to search: patterns to leave out, relative to `root`, and whether `.gitignore` counts."""

    root: Path
    exclude: tuple[str, ...] = ()
    gitignore: bool = True


def discover(paths: Iterable[Path], how: Discovery) -> tuple[Path, ...]:
    """The files to lint, each once, in the order of `paths` and by name within a folder. Nothing is parsed."""
    found: dict[str, Path] = {}
    for path in paths:
        for file in _walk(path, how) if path.is_dir() else (path,):
            found.setdefault(os.path.realpath(file), file)
    return tuple(found.values())


def _walk(folder: Path, how: Discovery) -> Iterator[Path]:
    exclude = Patterns.parse(how.exclude)
    above = _gitignores_above(folder) if how.gitignore else ()
    yield from _walk_folder(folder, above, exclude, how)


Scoped = tuple[Path, Patterns]
"""Patterns and the folder that they are relative to."""


def _walk_folder(folder: Path, above: tuple[Scoped, ...], exclude: Patterns, how: Discovery) -> Iterator[Path]:
    scopes = above + (_gitignore_in(folder) if how.gitignore else ())
    for entry in _entries(folder):
        path = folder / entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if _is_ignored(path, is_folder, scopes) or _is_excluded(path, is_folder, exclude, how.root):
            continue
        if is_folder:
            if entry.name not in SKIPPED and not _is_environment(path):
                yield from _walk_folder(path, scopes, exclude, how)
        elif entry.is_file() and _is_wanted(path):
            yield path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The folder's entries by name; none where it may not be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_wanted(path: Path) -> bool:
    suffix = path.suffix.lower()
    return suffix in SCRIPT or suffix in NOTEBOOK or (suffix in CONFIGURATION and _speaks_of_precision(path))


def _speaks_of_precision(path: Path) -> bool:
    try:
        if path.stat().st_size > CONFIGURATION_LIMIT:
            return False
        data = path.read_bytes()
    except OSError:
        return False
    return any(word in data for word in CONFIGURATION_WORDS)


def _is_environment(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in ENVIRONMENT_MARKS)


def _is_ignored(path: Path, is_folder: bool, scopes: tuple[Scoped, ...]) -> bool:
    """Whether git ignores it: the innermost file that says anything decides."""
    for folder, patterns in reversed(scopes):
        decision = patterns.decide(_relative(path, folder), is_folder)
        if decision is not None:
            return decision
    return False


def _is_excluded(path: Path, is_folder: bool, exclude: Patterns, root: Path) -> bool:
    return exclude.decide(_relative(path, root), is_folder) is True


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _gitignore_in(folder: Path) -> tuple[Scoped, ...]:
    try:
        lines = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return ((folder, Patterns.parse(lines)),)


def _gitignores_above(folder: Path) -> tuple[Scoped, ...]:
    """The `.gitignore` files between the top of the repository and `folder`, outermost first.

    A folder that is itself ignored is walked all the same when it was named.
    """
    here = Path(os.path.abspath(folder))
    above: list[Path] = []
    for parent in (here, *here.parents):
        if (parent / ".git").exists():
            return tuple(scope for up in reversed(above) for scope in _gitignore_in(up))
        above.append(parent.parent)
    return ()
