"""Fixes are applied until none is left, and what comes out is Python that needs no further fix.

In each round the fixes that do not overlap are made together, the last first; a result that no longer parses is
undone fix by fix. Only safe fixes are made unless all are asked for.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mixprec.lint._decode import UnreadableError
from mixprec.lint._document import Document
from mixprec.records import Edit, Finding

__all__ = ["Fixed", "fix", "parses"]

ROUNDS = 10
"""More rounds than any chain of fixes needs; a fix that calls for itself again stops here."""

Lint = Callable[[str], Sequence[Finding]]


@dataclass(frozen=True)
class Fixed:
    """A document after fixing, the findings whose fixes were made, and the findings that are left."""

    document: Document
    applied: tuple[Finding, ...]
    left: tuple[Finding, ...]


def fix(document: Document, lint: Lint, *, unsafe: bool = False) -> Fixed:
    """Apply what can be applied. `lint` finds in the document's source; its findings carry edits in places there."""
    applied: list[Finding] = []
    refused: set[tuple[Edit, ...]] = set()
    findings = tuple(lint(document.source))
    for _ in range(ROUNDS):
        chosen = _choose((finding for finding in findings if _edits(finding) not in refused), unsafe)
        if not chosen:
            break
        better, made = _make(document, chosen)
        then = tuple(lint(better.source)) if made else findings
        if not made or not _helped(made, findings, then):
            refused.update(_edits(finding) for finding in chosen)
            continue
        refused.update(_edits(finding) for finding in chosen if finding not in made)
        applied.extend(made)
        document, findings = better, then
    return Fixed(document, tuple(applied), findings)


def _helped(made: Sequence[Finding], before: Sequence[Finding], after: Sequence[Finding]) -> bool:
    """Whether there are fewer findings of every code that was fixed; a fix that does not help would go on for ever."""
    return all(_count(code, after) < _count(code, before) for code in {finding.code for finding in made})


def _count(code: str, findings: Sequence[Finding]) -> int:
    return sum(finding.code == code for finding in findings)


def _edits(finding: Finding) -> tuple[Edit, ...]:
    return () if finding.fix is None else finding.fix.edits


def _choose(findings: Iterable[Finding], unsafe: bool) -> tuple[Finding, ...]:
    """Findings whose fixes may be made together, by place. A fix that several findings share is made once."""
    chosen: list[Finding] = []
    taken: list[Edit] = []
    for finding in sorted(findings, key=_start):
        edits = _edits(finding)
        if not edits or not (unsafe or (finding.fix is not None and finding.fix.safe)):
            continue
        if not any(_overlap(edit, other) for edit in edits for other in taken):
            chosen.append(finding)
            taken.extend(edits)
    return tuple(chosen)


def _start(finding: Finding) -> tuple[int, int]:
    return min(((edit.start_line, edit.start_column) for edit in _edits(finding)), default=(0, 0))


def _overlap(one: Edit, other: Edit) -> bool:
    """Whether two edits touch a common character or insert at the same place."""
    start, end = (one.start_line, one.start_column), (one.end_line, one.end_column)
    other_start, other_end = (other.start_line, other.start_column), (other.end_line, other.end_column)
    return start == other_start or (start < other_end and other_start < end)


def _make(document: Document, chosen: Sequence[Finding]) -> tuple[Document, tuple[Finding, ...]]:
    """The document with all chosen fixes made, or with those that leave it Python, tried one by one."""
    together = _attempt(document, [edit for finding in chosen for edit in _edits(finding)])
    if together is not None:
        return together, tuple(chosen)
    made: list[Finding] = []
    for finding in reversed(chosen):
        better = _attempt(document, [edit for kept in (*made, finding) for edit in _edits(kept)])
        if better is not None:
            made.append(finding)
    return (_attempt(document, [edit for kept in made for edit in _edits(kept)]) or document), tuple(made)


def _attempt(document: Document, edits: Sequence[Edit]) -> Document | None:
    edited = document.edited(edits) if edits else document
    return edited if edited is not None and parses(edited.source) and _can_be_stored(edited) else None


def _can_be_stored(document: Document) -> bool:
    try:
        document.encode()
    except UnreadableError:
        return False
    return True


def parses(source: str) -> bool:
    """Whether `source` is Python of the running version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
