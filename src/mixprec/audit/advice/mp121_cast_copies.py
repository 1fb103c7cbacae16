"""MP121: the 16-bit copies of weights are a large part of the peak."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._log import Kind
from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Location, Severity

__all__ = ["advise"]

LARGE = 8 * 2**20
SMALL = 2**18


def advise(report: AuditReport) -> Iterator[Advice]:
    """In inference they come on top of float32 weights that nobody needs."""
    memory = report.memory
    copies = memory.total(Kind.CAST)
    share = memory.peak_share(Kind.CAST)
    if not report.mixed or share < 0.08 or copies < SMALL:
        return
    weights = memory.total(Kind.WEIGHT)
    matters = share >= 0.15 and copies >= LARGE
    yield piece(
        "MP121",
        Severity.WARNING if matters else Severity.INFO,
        f"Autocast keeps 16-bit copies of the weights beside them: {mebibytes(copies)} for {mebibytes(weights)} of "
        f"weights, {percent(share)} of the peak.",
        gain=share if report.trains else (weights + copies - weights / 2) / memory.peak,
        location=report.regions[0].location if report.regions else Location(),
        evidence=[fact("copies", mebibytes(copies)), fact("weights", mebibytes(weights))],
        fix=_fix(report),
    )


def _fix(report: AuditReport) -> str:
    if not report.trains:
        short = "bfloat16" if report.precision == "bfloat16" else "half"
        return f"For inference convert the model once, model.{short}(), and keep no float32 weights."
    return "A region per block frees them sooner; 16-bit weights with float32 masters (bf16-master) need no copies."
