"""A project is the files around a file: what its modules define and which versions it asks for.

Nothing is imported or executed; modules are read and parsed when they are first asked for.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["Project", "Version"]

Version = tuple[int, ...]

MOST_VIEWS = 512
"""Files that a project keeps parsed, a few megabytes each at most: a long run must not hold a repository in memory."""
_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", ".git")
_REQUIREMENTS = ("requirements.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment.yml", "environment.yaml")
_LARGEST = 1_000_000  # bytes; beyond this a module is data
_PACKAGE = r"(?:^|[\s\"'\[,])(?:[\w.-]+::)?{name}\s*(?:\[[^\]]*\])?\s*(?P<spec>(?:[<>=!~]=?=?\s*[\w.*+]+\s*,?\s*)+)"
_CLAUSE = re.compile(r"(?P<op>[<>=!~]=?=?)\s*(?P<version>\d+(?:\.\d+)*)")


class Project:
    """The surroundings of linted files.

    `root` is the folder that holds them all, None for a text without surroundings. `sources` are modules in memory
    (path relative to the root -> text) that stand in for files. `requirements` are lines as in requirements.txt and,
    where given, stand in for the project's own.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        sources: Mapping[str, str] | None = None,
        requirements: Iterable[str] | None = None,
    ) -> None:
        self.root = None if root is None else Path(root)
        self.sources = dict(sources or {})
        self._requirements = None if requirements is None else "\n".join(requirements)
        self._views: dict[str, FileView] = {}  # the last one was asked for last
        self._places: dict[tuple[str, str], str | None] = {}

    @staticmethod
    def around(path: str | os.PathLike[str]) -> Project:
        """The project that the file or folder at `path` belongs to: the closest folder above that looks like a root."""
        start = Path(path).absolute()
        folder = start if start.is_dir() else start.parent
        for candidate in (folder, *folder.parents):
            if any((candidate / marker).exists() for marker in _MARKERS):
                return _at(str(candidate))
        return _at(str(folder))

    def module(self, name: str, importer: str) -> FileView | None:
        """The module that `name` (dots in front for relative imports) means in the file `importer`, if it is here."""
        place = (name, os.path.dirname(importer))
        if place not in self._places:
            found = (path for path in self._candidates(*place) if self._view(path) is not None)
            self._places[place] = next(found, None)
        path = self._places[place]
        return None if path is None else self._view(path)

    def view(self, path: str, source: str) -> FileView:
        """The file at `path` with the text `source`, parsed only if no other file has asked for it as a module.

        Raises SyntaxError (or ValueError for a null byte) where the text is not Python.
        """
        from mixprec.lint._view import FileView

        known = self._views.get(path)
        return known if known is not None and known.source == source else FileView(path, source, self)

    def definition(self, dotted: str, importer: str) -> tuple[FileView, str] | None:
        """(module, name) of the module of this project in which `dotted` may be defined, as seen from `importer`."""
        module, _, name = dotted.rpartition(".")
        if not module.strip("."):
            module, name = (module + "." if dotted.startswith(".") else dotted), name
            if module == dotted:
                return None
        view = self.module(module, importer)
        return None if view is None else (view, name)

    @functools.cached_property
    def requirements(self) -> str:
        """The text of everything in the root that names versions."""
        if self._requirements is not None:
            return self._requirements
        if self.root is None:
            return ""
        return "\n".join(filter(None, (_read(self.root / name) for name in _REQUIREMENTS)))

    def oldest(self, package: str = "torch") -> Version | None:
        """The oldest version of `package` that the project accepts, as far as it says so; None where it does not."""
        bounds = [v for op, v in self._clauses(package) if op in (">=", ">", "==", "~=", "=", "===")]
        return max(bounds, default=None)

    def newest(self, package: str = "torch") -> Version | None:
        """The version of `package` up to which the project goes (a `<` bound is itself outside); None where open."""
        bounds = [v for op, v in self._clauses(package) if op in ("<=", "<", "==", "=", "===")]
        return min(bounds, default=None)

    def may_run_below(self, version: Version, package: str = "torch") -> bool:
        """Whether the project says that it accepts versions of `package` below `version`."""
        oldest = self.oldest(package)
        if oldest is not None:
            return oldest < version
        newest = self.newest(package)
        return newest is not None and newest <= version

    def _clauses(self, package: str) -> list[tuple[str, Version]]:
        names = [package, "pytorch"] if package == "torch" else [package]
        found = []
        for name in names:
            pattern = _PACKAGE.format(name=re.escape(name))
            for match in re.finditer(pattern, self.requirements, re.MULTILINE):
                for clause in _CLAUSE.finditer(match["spec"]):
                    found.append((clause["op"], tuple(int(part) for part in clause["version"].split("."))))
        return found

    def _candidates(self, name: str, here: str) -> list[str]:
        """The paths at which the module `name`, as seen from the folder `here`, may be."""
        stem = name.lstrip(".")
        level = len(name) - len(stem)
        tail = stem.replace(".", "/")
        if level:
            folders = [os.path.join(here, *[".."] * (level - 1))]
        elif self.root is not None:
            folders = [here, str(self.root), os.path.join(self.root, "src")]
        else:
            folders = [here, ""] if self.sources else [here]
        ends = (f"{tail}.py", f"{tail}/__init__.py") if tail else ("__init__.py",)
        return [os.path.normpath(os.path.join(folder, end)) for folder in folders for end in ends]

    def _view(self, path: str) -> FileView | None:
        """The file at `path`, if it can be read; the `MOST_VIEWS` that were asked for last are kept."""
        view = self._views.pop(path, None) or self._load(path)
        if view is not None:
            self._views[path] = view
        if len(self._views) > MOST_VIEWS:
            del self._views[next(iter(self._views))]
        return view

    def _load(self, path: str) -> FileView | None:
        from mixprec.lint._view import FileView

        source = self.sources.get(path.replace(os.sep, "/"))
        if source is None and self.root is not None:
            source = _read(Path(path))
        if source is None:
            return None
        try:
            return FileView(path, source, self)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


@functools.lru_cache(maxsize=8)
def _at(root: str) -> Project:
    return Project(root)


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
