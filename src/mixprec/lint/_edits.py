"""An edit replaces exactly the characters it names: comments and formatting around it stay as they are.

Lines and columns are 1-based and count characters; `ast` counts columns in UTF-8 bytes, so every place is translated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from mixprec.records import Edit

__all__ = ["Editor"]

_INDENT = re.compile(r"[ \t]*")


class Editor:
    """Makes edits for one source text, given as lines without their ends."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def column(self, line: int, offset: int) -> int:
        """The 1-based character column of the UTF-8 byte `offset` in `line`."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if text.isascii():
            return offset + 1
        return len(text.encode("utf-8")[:offset].decode("utf-8", "replace")) + 1

    def span(self, node: ast.AST) -> tuple[int, int, int, int]:
        """(line, column, end line, end column) of `node`; the end is exclusive."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_offset = getattr(node, "end_col_offset", None)
        end = self.column(end_line, offset if end_offset is None else end_offset)
        return line, self.column(line, offset), end_line, end

    def replace(self, node: ast.AST, text: str) -> Edit:
        """`node` replaced by `text`."""
        return Edit(*self.span(node), text)

    def indent(self, stmt: ast.stmt) -> str:
        """The white space before `stmt`'s line."""
        found = _INDENT.match(self.lines[stmt.lineno - 1])
        return found.group() if found else ""

    def stands_alone(self, stmt: ast.stmt) -> bool:
        """Whether `stmt` has its lines to itself, apart from a comment: no `;`, no `if x: stmt`."""
        line, column, end_line, end = self.span(stmt)
        before, after = self.lines[line - 1][: column - 1], self.lines[end_line - 1][end - 1 :].strip()
        return not before.strip() and (not after or after.startswith("#"))

    def insert_before(self, stmt: ast.stmt, text: str) -> Edit | None:
        """Lines of `text` put before `stmt`, indented like it; None where `stmt` shares its line."""
        if not self.stands_alone(stmt):
            return None
        return Edit(stmt.lineno, 1, stmt.lineno, 1, self._block(stmt, text))

    def insert_after(self, stmt: ast.stmt, text: str) -> Edit | None:
        """Lines of `text` put after `stmt`, indented like it; None where `stmt` shares its line."""
        if not self.stands_alone(stmt):
            return None
        last = stmt.end_lineno or stmt.lineno
        if last >= len(self.lines):
            end = len(self.lines[last - 1]) + 1
            return Edit(last, end, last, end, "\n" + self._block(stmt, text).rstrip("\n"))
        return Edit(last + 1, 1, last + 1, 1, self._block(stmt, text))

    def delete(self, stmt: ast.stmt) -> Edit | None:
        """`stmt` with its lines taken out; None where it shares a line or nothing would remain to end it."""
        last = stmt.end_lineno or stmt.lineno
        if not self.stands_alone(stmt):
            return None
        if last >= len(self.lines):
            return Edit(stmt.lineno, 1, last, len(self.lines[last - 1]) + 1, "")
        return Edit(stmt.lineno, 1, last + 1, 1, "")

    def reindent(self, stmts: Sequence[ast.stmt], indent: str) -> tuple[Edit, ...] | None:
        """Every line of `stmts` moved to `indent`; None where a string spans lines or a line is not indented so far."""
        old = self.indent(stmts[0])
        if not all(self.stands_alone(stmt) for stmt in stmts) or any(map(_spans_lines, stmts)):
            return None
        edits = []
        for number in range(stmts[0].lineno, (stmts[-1].end_lineno or stmts[-1].lineno) + 1):
            text = self.lines[number - 1]
            if not text.strip():
                continue
            if not text.startswith(old):
                return None
            edits.append(Edit(number, 1, number, len(old) + 1, indent))
        return tuple(edits)

    def _block(self, stmt: ast.stmt, text: str) -> str:
        indent = self.indent(stmt)
        return "".join(f"{indent}{line}\n" if line else "\n" for line in text.splitlines())


def _spans_lines(stmt: ast.stmt) -> bool:
    """Whether a string literal in `stmt` runs over several lines, so that its text would change with the indent."""
    return any(
        isinstance(node, (ast.Constant, ast.JoinedStr))
        and (node.end_lineno or node.lineno) > node.lineno
        and not (isinstance(node, ast.Constant) and not isinstance(node.value, (str, bytes)))
        for node in ast.walk(stmt)
    )
