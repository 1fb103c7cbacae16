"""A migration is the text before and after, with every place that was not understood and so not touched."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

__all__ = ["Migration", "Note", "Refusal"]


@dataclass(frozen=True, order=True)
class Refusal:
    """A place that was left as it is: its 1-based `line`, `what` stands there, `why` it was not understood."""

    line: int
    what: str
    why: str


@dataclass(frozen=True, order=True)
class Note:
    """A place that was changed, where the meaning is not wholly the same: what to know."""

    line: int
    text: str


@dataclass(frozen=True)
class Migration:
    """What became of one file."""

    before: str
    after: str
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self.before != self.after

    def diff(self, name: str) -> str:
        """A unified diff; empty where nothing changed."""
        old, new = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))
