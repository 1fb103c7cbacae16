"""Linting is a pure function from text to findings: no text makes it raise, no rule's crash hides another's finding."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from mixprec.lint._catalogue import all_rules, speaks
from mixprec.lint._project import Project
from mixprec.lint._rule import Rule
from mixprec.lint._view import FileView
from mixprec.lint._words import mentions
from mixprec.records import Finding, Location, Severity

__all__ = ["CRASHED", "UNREADABLE", "lint_source"]

UNREADABLE = "MP298"
"""Code of the finding for a text that is not Python."""
NOT_PYTHON = "not-python"
CRASHED = "MP299"
"""Code of the finding for a rule that failed on a file."""


def lint_source(
    source: str,
    filename: str,
    *,
    select: Iterable[str] | None = None,
    ignore: Iterable[str] | None = None,
    project: Project | None = None,
) -> list[Finding]:
    """What the rules find in `source`, sorted by place and code.

    `select` and `ignore` hold codes (`MP002`), prefixes of codes (`MP0`) or names (`clip-before-unscale`).
    `project` gives sibling modules and version requirements; without one the text stands alone.

    Text that speaks of precision and does not parse gives one finding `MP298`; a rule that crashes gives one finding
    `MP299` and the others run on. **Cost**: one search through the text where no rule's word occurs in it; otherwise
    parsing and the rules.
    """
    selected = _as_tuple(select)
    rules = _listening(_chosen(selected, _as_tuple(ignore)), source)
    if not rules and not (_names_unreadable(selected) and speaks(source)):
        return []
    try:
        view = FileView(filename, source) if project is None else project.view(filename, source)
    except SyntaxError as error:
        return [_unreadable(filename, error.msg or "invalid syntax", error.lineno, error.offset)]
    except (ValueError, RecursionError, MemoryError) as error:
        return [_unreadable(filename, str(error) or "nested too deeply", None, None)]
    found: list[Finding] = []
    for rule in rules:
        found.extend(_run(rule, view))
    return sorted(set(found), key=_place)


def _as_tuple(patterns: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if patterns is None else tuple(patterns)


def _names_unreadable(select: tuple[str, ...] | None) -> bool:
    return select is not None and any(UNREADABLE.startswith(p.upper()) or p.lower() == NOT_PYTHON for p in select if p)


@functools.lru_cache(maxsize=64)
def _chosen(select: tuple[str, ...] | None, ignore: tuple[str, ...] | None) -> Sequence[type[Rule]]:
    return tuple(
        rule
        for rule in all_rules()
        if (select is None or _matches(rule, select)) and not (ignore is not None and _matches(rule, ignore))
    )


def _matches(rule: type[Rule], patterns: tuple[str, ...]) -> bool:
    return any(rule.code.startswith(p.upper()) or rule.name == p.lower() for p in patterns if p)


def _listening(rules: Sequence[type[Rule]], source: str) -> list[type[Rule]]:
    """Those of `rules` that have a word in `source`; most rules share theirs, and each list is searched once."""
    heard = {words: mentions(source, words) for words in {rule.words for rule in rules}}
    return [rule for rule in rules if heard[rule.words]]


def _run(rule: type[Rule], view: FileView) -> list[Finding]:
    try:
        return list(rule().check(view))
    except Exception as error:  # a rule must not take the others down; the finding says which one failed and how
        return [
            Finding(
                code=CRASHED,
                name="rule-crashed",
                severity=Severity.INFO,
                message=f"The rule {rule.code} ({rule.name}) failed on this file: {type(error).__name__}: {error}",
                location=Location(file=view.path, line=1, column=1),
            )
        ]


def _unreadable(filename: str, reason: str, line: int | None, column: int | None) -> Finding:
    return Finding(
        code=UNREADABLE,
        name=NOT_PYTHON,
        severity=Severity.ERROR,
        message=f"This text is not Python that can be read: {reason}.",
        location=Location(file=filename, line=line or 1, column=max(column or 1, 1)),
    )


def _place(finding: Finding) -> tuple[int, int, str, str]:
    where = finding.location
    return where.line or 0, where.column or 0, finding.code, finding.message
