"""What the audit's page shows, as plain values: the template only places them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mixprec._trace import source_line
from mixprec.audit import AuditReport
from mixprec.audit._log import Kind
from mixprec.records import Finding
from mixprec.report import text
from mixprec.report.audit_text import amount, headline, on_top, place_of, remark, speed_facts

__all__ = ["audit_view"]

COLOURS = {kind: index for index, kind in enumerate(Kind)}


def audit_view(report: AuditReport) -> dict[str, Any]:
    """The values of the page."""
    memory = report.memory
    at = place_of(memory.peak_at)
    return {
        "headline": headline(report),
        "notes": report.notes,
        "findings": [_finding(finding) for finding in report.findings],
        "peak": amount(memory.peak),
        "peak_at": (f"in {memory.peak_phase}" + (f", at {at}" if at else "")) if memory.peak_phase else "",
        "memory": [
            {
                "name": line.kind.value,
                "dtype": line.dtype,
                "amount": amount(line.bytes),
                "share": round(100 * line.bytes / memory.peak, 2) if memory.peak else 0,
                "colour": COLOURS[line.kind],
            }
            for line in memory.at_peak
        ],
        "tables_of_memory": _memory_tables(report),
        "forecasts": _forecasts(report),
        "legend": _legend(report),
        "on_top": on_top(report),
        "speed": speed_facts(report),
        "tables_of_speed": _speed_tables(report),
        "modules": _modules(report),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity,
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "place": text.place(finding.location),
        "line": source_line(finding.location),
        "fix": finding.fix.text if finding.fix else "",
        "facts": [f"{fact.what} = {fact.value}{' ' + fact.unit if fact.unit else ''}" for fact in finding.evidence],
    }


Table = tuple[str, tuple[str, ...], Sequence[tuple[str, ...]], tuple[int, ...]]


def _memory_tables(report: AuditReport) -> list[Table]:
    memory = report.memory
    tables: list[Table] = []
    if memory.saved:
        rows = [
            (row.module or "(outside)", row.op, row.dtype, str(row.tensors), amount(row.bytes))
            for row in memory.saved[:12]
        ]
        tables.append(("Kept for backward", ("module", "op", "dtype", "tensors", "bytes"), rows, (1, 2)))
    if memory.largest:
        singles = [
            (
                " × ".join(map(str, row.shape)),
                row.dtype,
                row.op,
                place_of(row.location),
                row.kind.value,
                amount(row.bytes),
            )
            for row in memory.largest
        ]
        columns = ("shape", "dtype", "op", "where", "held for", "bytes")
        tables.append(("Largest tensors made in the step", columns, singles, (1, 2, 3, 4)))
    return tables


def _speed_tables(report: AuditReport) -> list[Table]:
    layers = [
        (row.module or row.op, row.op, row.dtype, f"{100 * row.share:.1f} %", f"{row.flops:.3g}", remark(row))
        for row in report.products.layers[:40]
    ]
    casts = [
        (
            row.op or "(script)",
            row.location.module or "",
            f"{row.source} → {row.target}",
            row.what,
            place_of(row.location),
            str(row.count),
            amount(row.bytes),
        )
        for row in report.casts.rows[:20]
    ]
    syncs = [
        (place_of(row.location) or "(library)", row.what, "script" if row.by_script else "library", str(row.count))
        for row in report.syncs[:20]
    ]
    tables: list[Table] = [
        ("Products by layer", ("module", "op", "dtype", "share", "FLOPs", "remark"), layers, (1, 2, 5)),
        ("Casts", ("for", "module", "dtypes", "of", "where", "count", "bytes"), casts, (1, 2, 3, 4)),
        ("Host syncs", ("where", "what", "by", "per step"), syncs, (1, 2)),
    ]
    return [table for table in tables if table[2]]


def _forecasts(report: AuditReport) -> list[dict[str, Any]]:
    most = max((row.peak for row in report.forecasts), default=1) or 1
    rows = []
    for row in report.forecasts:
        parts = [
            (Kind.WEIGHT, row.weights),
            (Kind.MASTER, row.masters + row.extra),
            (Kind.STATE, row.state),
            (Kind.BUFFER, row.buffers),
            (Kind.CAST, row.casts),
            (Kind.SAVED, row.saved),
        ]
        known = sum(size for _, size in parts)
        parts.append((Kind.OTHER, max(0, row.peak - known)))
        rows.append(
            {
                "name": row.precision,
                "amount": amount(row.peak),
                "parts": [
                    {
                        "name": kind.value,
                        "amount": amount(size),
                        "share": round(100 * size / max(most, known), 2),
                        "colour": COLOURS[kind],
                    }
                    for kind, size in parts
                    if size
                ],
            }
        )
    return rows


def _legend(report: AuditReport) -> list[tuple[str, int]]:
    """(name, colour) of every cause in the bars of the forecast, in their order."""
    seen = {part["name"] for row in _forecasts(report) for part in row["parts"]}
    return [(kind.value, COLOURS[kind]) for kind in Kind if kind.value in seen]


def _modules(report: AuditReport) -> list[tuple[str, list[dict[str, Any]]]]:
    """The forward ops of each module, in the order in which modules first ran."""
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in report.ops:
        if row.phase != "forward":
            continue
        name = f"{row.module or '(outside)' if not row.cls else row.module or 'model'}"
        title = f"{name} ({row.cls})" if row.cls else name
        grouped[title].append(
            {
                "op": row.op,
                "phase": row.phase,
                "count": row.count,
                "into": ", ".join(row.into) or "–",
                "out": ", ".join(row.out) or "–",
                "rule": row.rule,
                "casts": row.casts,
                "why": f"{row.rule + ': ' if row.rule else ''}{row.reason}"
                + (f" ({row.casts} casts, {amount(row.cast_bytes)})" if row.casts else ""),
            }
        )
    return list(grouped.items())
