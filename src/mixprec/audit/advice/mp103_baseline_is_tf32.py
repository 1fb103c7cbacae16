"""MP103: the float32 baseline runs in TF32 already, so there is less to gain."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, piece
from mixprec.records import Severity

__all__ = ["advise"]


def advise(report: AuditReport) -> Iterator[Advice]:
    """Only where TF32 is allowed and the device has it."""
    over = report.bound.speedup_over_tf32
    if not report.flags.tf32 or over is None:
        return
    yield piece(
        "MP103",
        Severity.INFO,
        f"float32 products are allowed to run in TF32: against such a baseline 16-bit is at most {over:.1f} times as "
        f"fast on {report.bound.device}, against plain float32 {report.bound.speedup:.1f} times.",
        gain=0.0,
        evidence=[fact("bound over TF32", over), fact("bound over float32", report.bound.speedup)],
    )
