"""MP123: backward keeps the same values in float32 and in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

LARGE = 2**20


def advise(report: AuditReport) -> Iterator[Advice]:
    """Counted by pairs: a float32 tensor that is kept, and its own 16-bit copy that is kept too."""
    twice = report.memory.twice
    size = sum(row.bytes for row in twice)
    saved = sum(row.bytes for row in report.memory.saved)
    share = size / saved if saved else 0.0
    if not report.mixed or not twice or share < 0.05:
        return
    yield piece(
        "MP123",
        Severity.WARNING if share >= 0.2 and size >= LARGE else Severity.INFO,
        f"{sum(row.tensors for row in twice)} activations are kept for backward in float32 and again in 16 bits: "
        f"{mebibytes(size)} in float32, {percent(share)} of what backward keeps.",
        gain=size / report.memory.peak if report.memory.peak else 0.0,
        location=twice[0].location,
        evidence=[fact(f"{row.op} in {row.module or 'the step'}", mebibytes(row.bytes)) for row in twice[:4]],
        fix="Use a fused op that keeps one of them, compute the float32 part in a checkpoint, or keep that op in "
        "16 bits (Policy.lean()).",
    )
