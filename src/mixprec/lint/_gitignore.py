"""Patterns in the syntax of `.gitignore`; the last pattern that matches decides.

Covered: comments, `!`, a trailing `/` for folders, a leading or inner `/` that ties the pattern to its own folder,
`*`, `?`, `[...]`, `**`, and backslash escapes. Source: https://git-scm.com/docs/gitignore
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Patterns"]


@dataclass(frozen=True)
class _Pattern:
    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


@dataclass(frozen=True)
class Patterns:
    """The patterns of one `.gitignore` or of one configuration entry."""

    patterns: tuple[_Pattern, ...]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Patterns:
        """Patterns from the lines of a file; empty lines and comments are left out."""
        return cls(tuple(pattern for line in lines if (pattern := _parse(line)) is not None))

    def decide(self, path: str, is_folder: bool) -> bool | None:
        """Whether `path` (relative, with `/`) is ignored; None where no pattern says anything."""
        decision = None
        for pattern in self.patterns:
            if (is_folder or not pattern.folders_only) and pattern.regex.fullmatch(path):
                decision = not pattern.negated
        return decision

    def covers(self, path: str) -> bool:
        """Whether a file, or a folder above it, is ignored."""
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(self.decide(folder, True) for folder in above) or self.decide(path, False) is True


@lru_cache(maxsize=4096)
def _parse(line: str) -> _Pattern | None:
    text = line.rstrip("\r\n")
    text = re.sub(r"(?<!\\)\s+$", "", text)
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    text = text.removeprefix("/")
    body = _translate(text)
    try:
        regex = re.compile(body if anchored else f"(?:.*/)?{body}", re.DOTALL)
    except re.error:  # a class such as [z-a] matches nothing in git either
        return None
    return _Pattern(regex, negated, folders_only)


def _translate(glob: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(glob):
        piece, at = _token(glob, at)
        out.append(piece)
    return "".join(out)


def _token(glob: str, at: int) -> tuple[str, int]:
    """The regular expression for the token at `at`, and where the next begins."""
    rest = glob[at:]
    if rest.startswith("**/"):
        return "(?:.*/)?", at + 3
    if rest == "**":
        return ".*", at + 2
    if rest.startswith("*"):
        return "[^/]*", at + (len(rest) - len(rest.lstrip("*")))
    if rest.startswith("?"):
        return "[^/]", at + 1
    if rest.startswith("\\") and len(rest) > 1:
        return re.escape(rest[1]), at + 2
    if bracket := re.match(r"\[(!|\^)?(\]?[^\]]*)\]", rest):
        inside = bracket[2].replace("\\", "\\\\").replace("[", "\\[")
        return f"[{'^' if bracket[1] else ''}{inside}]", at + bracket.end()
    return re.escape(rest[0]), at + 1
