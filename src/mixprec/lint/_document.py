"""What is linted is one Python text with places; how it is stored, and what the places are called, is the document's.

A script's places are its own. A notebook's are cells and lines in them. Edits are always given in places of `source`.
"""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mixprec.lint._decode import Decoded
from mixprec.lint._lines import Lines
from mixprec.lint._notebook import Cell, Notebook
from mixprec.records import Edit, Finding, Fix, Location

__all__ = ["Document", "NotebookDocument", "ScriptDocument", "splice"]


def splice(text: str, edits: Iterable[Edit]) -> str:
    """`text` with non-overlapping edits made, the last first. Line ends in the new text are those of `text`."""
    lines = Lines(text)
    for edit in sorted(edits, key=lambda edit: (edit.start_line, edit.start_column), reverse=True):
        start = lines.offset(edit.start_line, edit.start_column)
        end = lines.offset(edit.end_line, edit.end_column)
        text = text[:start] + edit.text.replace("\n", lines.newline) + text[end:]
    return text


class Document(abc.ABC):
    """Something that can be linted and edited."""

    @property
    @abc.abstractmethod
    def source(self) -> str:
        """The text that is linted."""

    @abc.abstractmethod
    def edited(self, edits: Sequence[Edit]) -> Document | None:
        """The document with edits made; None where they cannot be made here."""

    @abc.abstractmethod
    def encode(self) -> bytes:
        """The file's bytes."""

    @abc.abstractmethod
    def present(self, finding: Finding) -> Finding:
        """The finding with its places as the user knows them."""


@dataclass(frozen=True)
class ScriptDocument(Document):
    """A Python file."""

    decoded: Decoded

    @property
    def source(self) -> str:
        """The file's text."""
        return self.decoded.text

    def edited(self, edits: Sequence[Edit]) -> ScriptDocument:
        """The script with edits made."""
        return replace(self, decoded=replace(self.decoded, text=splice(self.source, edits)))

    def encode(self) -> bytes:
        """The text in the file's own encoding."""
        return self.decoded.encode(self.source)

    def present(self, finding: Finding) -> Finding:
        """The finding itself."""
        return finding


@dataclass(frozen=True)
class NotebookDocument(Document):
    """A notebook file."""

    notebook: Notebook
    decoded: Decoded

    @cached_property
    def _source(self) -> str:
        return self.notebook.source

    @property
    def source(self) -> str:
        """All code cells as one script."""
        return self._source

    def edited(self, edits: Sequence[Edit]) -> NotebookDocument | None:
        """The notebook with edits made; None where one crosses cells or touches a line that is not Python."""
        by_cell: dict[int, list[Edit]] = defaultdict(list)
        for edit in edits:
            placed = self._inside(edit)
            if placed is None:
                return None
            by_cell[placed[0].number].append(placed[1])
        texts = [splice(cell.text, by_cell[cell.number]) for cell in self.notebook.cells]
        return replace(self, notebook=self.notebook.with_texts(texts))

    def encode(self) -> bytes:
        """The file's text with the edited cells in it."""
        return self.decoded.encode(self.notebook.raw)

    def present(self, finding: Finding) -> Finding:
        """The finding at its cell, and the line there."""
        if finding.location.line is None or not self.notebook.cells:
            return finding
        return replace(finding, location=self._place(finding.location), fix=self._placed_fix(finding.fix))

    def _place(self, location: Location) -> Location:
        cell, line = self.notebook.locate(location.line or 1)
        end = location.end_line
        inner_end = None if end is None else min(end - (location.line or 1) + line, len(Lines(cell.python)))
        return replace(location, line=line, end_line=inner_end, cell=cell.number)

    def _placed_fix(self, fix: Fix | None) -> Fix | None:
        """The fix with its edits in lines of their cell; without edits where they cannot be made."""
        if fix is None or not fix.edits:
            return fix
        placed = [self._inside(edit) for edit in fix.edits]
        if any(item is None for item in placed) or len({item[0].number for item in placed if item}) > 1:
            return replace(fix, safe=False, edits=())
        return replace(fix, edits=tuple(item[1] for item in placed if item))

    def _inside(self, edit: Edit) -> tuple[Cell, Edit] | None:
        """The cell that an edit lies in, and the edit in its lines; None where it lies in no single cell's Python."""
        cell, start = self.notebook.locate(edit.start_line)
        first = edit.start_line - start
        end, end_column = edit.end_line - first, edit.end_column
        count = len(Lines(cell.text))
        if end == count + 1 and end_column == 1:
            end, end_column = count, len(Lines(cell.text).line(count)) + 1
        if end > count or cell.error is not None or any(line in cell.foreign for line in range(start, end + 1)):
            return None
        return cell, Edit(start, edit.start_column, end, end_column, edit.text)
