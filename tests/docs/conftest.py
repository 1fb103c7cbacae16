"""Fenced blocks of a Markdown file, as the tests run them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words after it, its text, and the 1-based line of the text in the file."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """A Markdown file."""

    path: Path
    text: str

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every fenced block in order."""
        found = re.finditer(r"^```(\w*)([^\n]*)\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        return tuple(Block(m[1], tuple(m[2].split()), m[3], self.text.count("\n", 0, m.start(3)) + 1) for m in found)

    @property
    def headings(self) -> tuple[tuple[int, str], ...]:
        """(level, text) of every heading outside fenced blocks."""
        outside = re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)
        return tuple((len(marks), title) for marks, title in re.findall(r"^(#+) (.+)$", outside, re.MULTILINE))

    @property
    def links(self) -> tuple[str, ...]:
        """Targets of Markdown links."""
        return tuple(re.findall(r"\]\(([^)\s]+)\)", self.text))


@pytest.fixture(scope="session")
def markdown():
    """`markdown("README.md")` -> Page."""
    return lambda name: Page(ROOT / name, (ROOT / name).read_text(encoding="utf-8"))
