"""Findings as workflow commands, which GitHub shows as annotations on the changed lines.

Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from mixprec.records import Finding, Severity

__all__ = ["annotation", "workflow_commands"]

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def workflow_commands(findings: Iterable[Finding]) -> str:
    """One command per line, in the order of the findings; empty where there is none."""
    return "\n".join(annotation(finding) for finding in findings)


def annotation(finding: Finding) -> str:
    """One finding as one command. A cell's line is no line of the notebook's file, so the cell is named in words."""
    where = finding.location
    properties = {"title": f"{finding.code} {finding.name}"}
    if where.file is not None:
        properties["file"] = PurePath(where.file).as_posix()
    if where.cell is None:
        places = {"line": where.line, "endLine": where.end_line, "col": where.column, "endColumn": where.end_column}
        properties.update({name: str(value) for name, value in places.items() if value is not None})
    cell = "" if where.cell is None else f"cell {where.cell}, line {where.line}: "
    fix = "" if finding.fix is None else f"\nFix: {finding.fix.text}"
    listed = ",".join(f"{name}={_property(value)}" for name, value in sorted(properties.items()))
    return f"::{COMMANDS[finding.severity]} {listed}::{_data(cell + finding.message + fix)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
