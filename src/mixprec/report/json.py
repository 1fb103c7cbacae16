"""Every JSON document that mixprec writes is one object that starts with `"schema": 1`; keys are only ever added."""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Iterable
from typing import Any

from mixprec.records import SCHEMA, Finding, to_json

__all__ = ["document", "findings_document", "plain", "summary"]


def document(**fields: Any) -> str:
    """`fields` (records allowed) as an indented JSON object after `"schema"`.

    Numbers that JSON cannot hold are written as the strings "inf", "-inf" and "nan".
    """
    return json.dumps(
        {"schema": SCHEMA, **{key: plain(value) for key, value in fields.items()}},
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )


def findings_document(findings: Iterable[Finding], **more: Any) -> str:
    """`{"schema", "findings", "summary", ...more}`: what `mixprec lint` and `mixprec audit` write."""
    found = tuple(findings)
    return document(findings=found, summary=summary(found), **more)


def summary(findings: Iterable[Finding]) -> dict[str, Any]:
    """How many findings in all, by severity and by code."""
    found = tuple(findings)
    severities = collections.Counter(finding.severity.value for finding in found)
    codes = collections.Counter(finding.code for finding in found)
    return {
        "total": len(found),
        **{severity: severities[severity] for severity in ("error", "warning", "info")},
        "by_code": dict(sorted(codes.items())),
    }


def plain(record: Any) -> Any:
    """`record` as values that JSON can hold: `to_json`, with infinities and NaN as strings."""
    return _portable(to_json(record))


def _portable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _portable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return value
