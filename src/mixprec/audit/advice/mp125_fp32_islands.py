"""MP125: much of what backward keeps is float32 although the region is 16-bit."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Location, Severity

__all__ = ["advise"]

MUCH = 0.5
LARGE = 2**20


def advise(report: AuditReport) -> Iterator[Advice]:
    """Points at the module that keeps most; a loss outside modules keeps float32 by design."""
    rows = [row for row in report.memory.saved if row.dtype == "float32"]
    inside = [row for row in rows if row.module]
    saved = sum(row.bytes for row in report.memory.saved)
    size = sum(row.bytes for row in inside)
    share = size / saved if saved else 0.0
    if not report.mixed or share < MUCH:
        return
    top = max(inside, key=lambda row: row.bytes)
    yield piece(
        "MP125",
        Severity.WARNING if share >= 0.7 and size >= 4 * LARGE else Severity.INFO,
        f"{percent(share)} of what backward keeps is float32 inside the model, most of it for {top.op} in "
        f"{top.module}.",
        gain=size / 2 / report.memory.peak if report.memory.peak else 0.0,
        location=next(
            (row.location for row in report.ops if (row.module, row.op) == (top.module, top.op)),
            Location(module=top.module, op=top.op),
        ),
        evidence=[fact(f"{row.op} in {row.module}", mebibytes(row.bytes)) for row in inside[:4]],
    )
