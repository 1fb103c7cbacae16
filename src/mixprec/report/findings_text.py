"""What lint found, for people: every finding where it stands, why it matters once per code, and one line at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console
from rich.table import Table

from mixprec.causes import find_cause
from mixprec.errors import UnknownNameError
from mixprec.records import Finding, Location
from mixprec.report import text

__all__ = ["count", "print_findings", "statistics"]

SourceOf = Callable[[Location], "str | None"]
"""The text that a location's line belongs to."""


def print_findings(screen: Console, findings: Iterable[Finding], source_of: SourceOf) -> None:
    """Print each finding with its source line; the reason stands at the first finding of each code."""
    explained: set[str] = set()
    for finding in findings:
        why = "" if finding.code in explained else _why(finding.code)
        explained.add(finding.code)
        screen.print(text.finding_text(finding, source_of(finding.location), why), soft_wrap=True)


def _why(code: str) -> str:
    try:
        return find_cause(code).symptom
    except UnknownNameError:
        return ""


def statistics(findings: Iterable[Finding]) -> Table:
    """How often each code was found, and how many of these have a fix that `--fix` applies; the most frequent first."""
    found = tuple(findings)
    counts = Counter((finding.code, finding.name, finding.severity.value) for finding in found)
    fixable = Counter(finding.code for finding in found if finding.fix is not None and finding.fix.safe)
    rows = [
        (code, name, severity, str(number), str(fixable[code]) if fixable[code] else "")
        for (code, name, severity), number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return text.table(("code", "name", "severity", "found", "fixable"), rows, right=(3, 4))


def count(findings: Iterable[Finding]) -> str:
    """`2 errors, 1 warning`; `nothing found` where there is none."""
    return ", ".join(_counts(Counter(finding.severity.value for finding in findings))) or "nothing found"


def _counts(severities: Counter[str]) -> Iterator[str]:
    for severity, plural in (("error", "errors"), ("warning", "warnings"), ("info", "notes")):
        number = severities[severity]
        if number:
            yield f"{number} {plural if number != 1 else plural[:-1]}"
