"""What the project wants: `[tool.mixprec.lint]` in `pyproject.toml`, checked in full before anything is linted.

```toml
[tool.mixprec.lint]
select = ["ALL"]                        # codes (MP002), beginnings of codes (MP2), names, or ALL
ignore = ["MP104"]
exclude = ["third_party/", "*_pb2.py"]  # in the syntax of .gitignore, relative to this file
baseline = "mixprec-baseline.json"
level = "info"                          # the least severity that is reported; see LintConfig.level
respect-gitignore = true

[tool.mixprec.lint.per-file-ignores]
"tests/**" = ["MP022"]
```
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixprec.causes import cause_names
from mixprec.errors import InvalidValueError, UnknownNameError
from mixprec.lint._gitignore import Patterns
from mixprec.records import Finding, Severity

__all__ = ["ORDER", "LintConfig", "Wanted", "expand", "find_config", "parse_config"]

tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

TABLE = "[tool.mixprec.lint]"


ORDER = (Severity.INFO, Severity.WARNING, Severity.ERROR)
"""Severities from the least to the most."""


@dataclass(frozen=True)
class Wanted:
    """What is looked for in one file, and what of that is reported."""

    codes: frozenset[str]
    levels: Mapping[str, Severity]
    """Code to the least severity that is reported."""

    def reports(self, finding: Finding) -> bool:
        """Whether a finding of a wanted code is severe enough."""
        least = self.levels.get(finding.code, Severity.WARNING)
        return ORDER.index(finding.severity) >= ORDER.index(least)


@dataclass(frozen=True)
class LintConfig:
    """Options of a lint run. Paths and patterns are relative to `root`.

    `level` is the least severity that is reported. Without one, warnings and errors are, and of the codes that are
    selected otherwise than by `ALL` everything.
    """

    root: Path
    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    baseline: str | None = None
    level: Severity | None = None
    respect_gitignore: bool = True
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def codes(self) -> frozenset[str]:
        """The codes that are looked for, before what single files ignore."""
        return expand(self.select) - expand(self.ignore)

    def wanted(self, path: str) -> Wanted:
        """What is wanted of the file `path` (relative to `root`, with `/`)."""
        codes = self.codes - self.ignored_in(path)
        if self.level is not None:
            return Wanted(codes, dict.fromkeys(codes, self.level))
        named = expand(selector for selector in self.select if not _is_all(selector))
        return Wanted(codes, dict.fromkeys(named, Severity.INFO))

    def ignored_in(self, path: str) -> frozenset[str]:
        """The codes that the file `path` (relative to `root`, with `/`) ignores."""
        selectors = (
            selector
            for pattern, ignored in self.per_file_ignores.items()
            if Patterns.parse([pattern]).covers(path)
            for selector in ignored
        )
        return expand(selectors)


def expand(selectors: Iterable[str]) -> frozenset[str]:
    """The codes that selectors name: a code, the beginning of one, a name, or `ALL`.

    Raises:
        UnknownNameError: a selector names no cause; carries the closest names.

    """
    return frozenset(code for selector in selectors for code in _expand_one(selector))


def _is_all(selector: str) -> bool:
    return selector.strip().upper() == "ALL"


def _expand_one(selector: str) -> frozenset[str]:
    names = cause_names()
    wanted = selector.strip()
    if _is_all(wanted):
        return frozenset(names)
    codes = frozenset(code for code, name in names.items() if code.startswith(wanted.upper()) or name == wanted.lower())
    if wanted and codes:
        return codes
    rules = _rule_names()
    if wanted.lower() in rules:
        return frozenset({rules[wanted.lower()]})
    raise UnknownNameError("rule", selector, {*names, *names.values(), *rules}, "`mixprec explain` lists the codes.")


def _rule_names() -> dict[str, str]:
    """Name to code of the rules; where several rules share a code, each has a name of its own."""
    from mixprec.lint._catalogue import all_rules  # loads every rule, which a selector by code does not need

    return {rule.name: rule.code for rule in all_rules()}


def find_config(start: Path) -> LintConfig:
    """The options of the nearest `pyproject.toml` at or above `start` that has the table; defaults where none has.

    Without such a file, `root` is the nearest folder with any `pyproject.toml`, else `start` itself.

    Raises:
        InvalidValueError: the file cannot be read, or says something that is not accepted.

    """
    here = start.resolve()
    folder = here if here.is_dir() else here.parent
    fallback: Path | None = None
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            if table is not None:
                return parse_config(table, candidate)
            fallback = fallback or candidate
    return LintConfig(fallback or folder)


def _table(file: Path) -> Any:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidValueError(str(file), str(error), "a readable TOML file") from error
    tool = document.get("tool", {})
    ours = tool.get("mixprec", {}) if isinstance(tool, dict) else {}
    return ours.get("lint") if isinstance(ours, dict) else None


def parse_config(table: object, root: Path) -> LintConfig:
    """Options from the parsed table.

    Raises:
        UnknownNameError: a key or a selector is not known.
        InvalidValueError: a value is of another kind than its key takes.

    """
    if not isinstance(table, dict):
        raise InvalidValueError(TABLE, table, "a table")
    for key in table:
        if key not in KEYS:
            raise UnknownNameError(f"key in {TABLE}", str(key), KEYS)
    values = {key.replace("-", "_"): KEYS[key](f"{key} in {TABLE}", value) for key, value in table.items()}
    config = LintConfig(root, **values)
    expand([*config.select, *config.ignore, *(code for codes in config.per_file_ignores.values() for code in codes)])
    return config


def _strings(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise InvalidValueError(name, value, "a list of strings")


def _string(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise InvalidValueError(name, value, "a string")


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidValueError(name, value, "true or false")


def _severity(name: str, value: object) -> Severity:
    try:
        return Severity(value)
    except ValueError as error:
        raise InvalidValueError(name, value, "one of error, warning, info") from error


def _per_file(name: str, value: object) -> dict[str, tuple[str, ...]]:
    if isinstance(value, dict):
        return {str(pattern): _strings(f"{pattern!r} of {name}", codes) for pattern, codes in value.items()}
    raise InvalidValueError(name, value, "a table of patterns and lists of codes")


KEYS: dict[str, Callable[[str, object], Any]] = {
    "baseline": _string,
    "exclude": _strings,
    "ignore": _strings,
    "level": _severity,
    "per-file-ignores": _per_file,
    "respect-gitignore": _boolean,
    "select": _strings,
}
