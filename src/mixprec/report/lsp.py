"""Findings as an editor wants them: places from 0 in UTF-16 units, quick fixes as text edits.

Values are plain dicts in the protocol's own words, so nothing here needs a language-server library.
Source: https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/
"""

from __future__ import annotations

import re
from typing import Any

from mixprec.causes import find_cause
from mixprec.errors import UnknownNameError
from mixprec.records import Edit, Finding, Severity

__all__ = ["diagnostic", "quick_fix", "silence"]

SEVERITIES = {Severity.ERROR: 1, Severity.WARNING: 2, Severity.INFO: 3}


def diagnostic(finding: Finding, source: str) -> dict[str, Any]:
    """A finding as a Diagnostic; its code links to the first source of the cause."""
    where = finding.location
    line, column = where.line or 1, where.column or 1
    end = (where.end_line or line, where.end_column or column + 1)
    made: dict[str, Any] = {
        "range": _range(source, line, column, *end),
        "severity": SEVERITIES[finding.severity],
        "code": finding.code,
        "source": "mixprec",
        "message": f"{finding.name}: {finding.message}",
    }
    link = _link(finding.code)
    return {**made, "codeDescription": {"href": link}} if link else made


def quick_fix(finding: Finding, source: str, uri: str) -> dict[str, Any] | None:
    """The finding's fix as a CodeAction, preferred where it is safe; None where it has no edits."""
    if finding.fix is None or not finding.fix.edits:
        return None
    edits = [_text_edit(edit, source) for edit in finding.fix.edits]
    return {**_action(finding, source, uri, finding.fix.text, edits), "isPreferred": finding.fix.safe}


def silence(finding: Finding, source: str, uri: str) -> dict[str, Any]:
    """A CodeAction that puts an ignore comment at the end of the finding's first line."""
    line = finding.location.line or 1
    column = len(_line(source, line)) + 1
    edit = Edit(line, column, line, column, f"  # mixprec: ignore[{finding.code}]")
    return _action(finding, source, uri, f"Ignore {finding.code} here", [_text_edit(edit, source)])


def _action(finding: Finding, source: str, uri: str, title: str, edits: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": f"mixprec: {title}",
        "kind": "quickfix",
        "diagnostics": [diagnostic(finding, source)],
        "edit": {"changes": {uri: edits}},
    }


def _text_edit(edit: Edit, source: str) -> dict[str, Any]:
    place = _range(source, edit.start_line, edit.start_column, edit.end_line, edit.end_column)
    return {"range": place, "newText": edit.text}


def _range(source: str, line: int, column: int, end_line: int, end_column: int) -> dict[str, Any]:
    return {"start": _position(source, line, column), "end": _position(source, end_line, end_column)}


def _position(source: str, line: int, column: int) -> dict[str, int]:
    before = _line(source, line)[: column - 1]
    return {"line": line - 1, "character": len(before.encode("utf-16-le", "surrogatepass")) // 2}


def _line(source: str, number: int) -> str:
    lines = re.split(r"\r\n|\r|\n", source)
    return lines[number - 1] if number <= len(lines) else ""


def _link(code: str) -> str:
    try:
        sources = find_cause(code).sources
    except UnknownNameError:
        return ""
    return sources[0] if sources else ""
