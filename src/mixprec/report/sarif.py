"""Findings as SARIF 2.1.0, the format that code-scanning services read.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from mixprec._version import __version__
from mixprec.causes import Cause, find_cause
from mixprec.errors import UnknownNameError
from mixprec.records import Edit, Finding, Location, Severity

__all__ = ["SCHEMA_URI", "sarif"]

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(findings: Iterable[Finding], fingerprints: Mapping[int, str] | None = None) -> str:
    """One run with its rules and results, as indented JSON.

    `fingerprints` maps a finding's position to what stays the same when lines move, so that a service knows an old
    finding again. Paths are written relative to the working folder where they are.
    """
    found = tuple(findings)
    rules = _rules(found)
    index = {rule["id"]: position for position, rule in enumerate(rules)}
    marks = fingerprints or {}
    results = [_result(finding, index[finding.code], marks.get(position)) for position, finding in enumerate(found)]
    driver = {"name": "mixprec", "semanticVersion": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _rules(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """One rule per code that was found, by code; its level is the one that was found first."""
    first = {finding.code: finding for finding in reversed(findings)}
    return [_rule(finding) for _, finding in sorted(first.items())]


def _rule(finding: Finding) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": finding.code,
        "name": "".join(word.capitalize() for word in finding.name.split("-")),
        "defaultConfiguration": {"level": LEVELS[finding.severity]},
    }
    cause = _cause(finding.code)
    if cause is not None:
        rule["shortDescription"] = {"text": cause.title}
        rule["fullDescription"] = {"text": f"{cause.title} {cause.symptom}"}
        rule["help"] = {"text": f"{cause.symptom} {cause.fix}", "markdown": _markdown(cause)}
        if cause.sources:
            rule["helpUri"] = cause.sources[0]
    return rule


def _cause(code: str) -> Cause | None:
    try:
        return find_cause(code)
    except UnknownNameError:
        return None


def _markdown(cause: Cause) -> str:
    sources = "\n".join(f"- <{source}>" for source in cause.sources)
    listed = f"\n\n**Sources**\n\n{sources}" if sources else ""
    return f"{cause.title}\n\n**Symptom** {cause.symptom}\n\n**Fix** {cause.fix}{listed}"


def _result(finding: Finding, rule: int, fingerprint: str | None) -> dict[str, Any]:
    where = finding.location
    cell = "" if where.cell is None else f" (cell {where.cell}, line {where.line})"
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": LEVELS[finding.severity],
        "message": {"text": finding.message + cell},
    }
    if where.file is not None:
        result["locations"] = [{"physicalLocation": _physical(where)}]
    if fingerprint is not None:
        result["partialFingerprints"] = {"mixprec/v1": fingerprint}
    if finding.fix is not None and finding.fix.edits and where.file is not None and where.cell is None:
        result["fixes"] = [_fix(finding, where.file)]
    return result


def _physical(where: Location) -> dict[str, Any]:
    """The file and region; a notebook's cell has no region in the file."""
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(where.file or "")}}
    if where.line is not None and where.cell is None:
        places = {
            "startLine": where.line,
            "startColumn": where.column,
            "endLine": where.end_line,
            "endColumn": where.end_column,
        }
        physical["region"] = {name: value for name, value in places.items() if value is not None}
    return physical


def _fix(finding: Finding, file: str) -> dict[str, Any]:
    fix = finding.fix
    replacements = [] if fix is None else [_replacement(edit) for edit in fix.edits]
    change = {"artifactLocation": {"uri": _uri(file)}, "replacements": replacements}
    return {"description": {"text": "" if fix is None else fix.text}, "artifactChanges": [change]}


def _replacement(edit: Edit) -> dict[str, Any]:
    region = {
        "startLine": edit.start_line,
        "startColumn": edit.start_column,
        "endLine": edit.end_line,
        "endColumn": edit.end_column,
    }
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
