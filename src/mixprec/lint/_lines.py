"""A place in a source text is a 1-based line and a 1-based column in characters, with Python's own idea of a line.

Line feed, carriage return, and both together end a line here, as for Python's tokenizer. `str.splitlines` also splits
at form feeds and Unicode separators, which may stand inside a line of code.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Lines"]

_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Lines:
    """A text with its line structure. Offsets are 0-based positions in `text`."""

    text: str

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Offset of the first character of every line; a text that ends with a line end has an empty last line."""
        return (0, *(match.end() for match in _END.finditer(self.text)))

    @cached_property
    def newline(self) -> str:
        """The line end that occurs most often; a line feed where there is none."""
        ends = _END.findall(self.text)
        return max(("\n", "\r\n", "\r"), key=ends.count)

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, number: int) -> str:
        """Line `number` (1-based) without its end; empty where the text has no such line."""
        if not 1 <= number <= len(self.starts):
            return ""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].rstrip("\r\n")

    def offset(self, line: int, column: int) -> int:
        """Offset of a place; a line or column past the end is the end."""
        if line > len(self.starts):
            return len(self.text)
        start = self.starts[max(line, 1) - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        return min(start + max(column, 1) - 1, end)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect.bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1
