"""The audit as a document: findings and their summary as every command writes them, then the numbers behind them."""

from __future__ import annotations

import dataclasses
from typing import Any

from mixprec.audit import AuditReport
from mixprec.report import json

__all__ = ["audit_document", "audit_fields"]


def audit_document(report: AuditReport) -> str:
    """`{"schema", "findings", "summary", "precision", "memory", …}`; bytes and seconds are plain numbers."""
    return json.findings_document(report.findings, **audit_fields(report))


def audit_fields(report: AuditReport) -> dict[str, Any]:
    """Every field of the report but the findings, and what its properties derive."""
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    del fields["findings"]
    bound = report.bound
    traits = report.measured_on
    return {
        **fields,
        "measured_on": None if traits is None else {**dataclasses.asdict(traits), "features": sorted(traits.features)},
        "products": {
            **json.plain(report.products),
            "low_share": report.products.low_share,
            "unaligned_share": report.products.unaligned_share,
        },
        "bound": {
            **json.plain(bound),
            "speedup": bound.speedup,
            "speedup_over_tf32": bound.speedup_over_tf32,
            "eager_speedup": bound.eager_speedup,
            "host_bound": bound.host_bound,
        },
    }
