"""MP120: weights, gradients and optimizer state are most of the peak, and autocast does not touch them."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._log import Kind
from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MOST = 0.6
LARGE = 16 * 2**20
SMALL = 2**20
"""Bytes below which nobody looks for memory: as a warning, and at all."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """Says which row of the forecast would help most."""
    memory = report.memory
    fixed = (Kind.WEIGHT, Kind.MASTER, Kind.GRADIENT, Kind.STATE)
    share = memory.total(*fixed) / memory.peak if memory.peak else 0.0
    if not report.mixed or not report.trains or share < MOST or memory.peak < SMALL:
        return
    best = min(report.forecasts, key=lambda row: row.peak)
    here = memory.peak
    saving = 1 - best.peak / here if here else 0.0
    yield piece(
        "MP120",
        Severity.WARNING if memory.total(*fixed) >= LARGE else Severity.INFO,
        f"Weights, gradients and optimizer state are {percent(min(1.0, share))} of the peak of "
        f"{mebibytes(memory.peak)}; autocast keeps all of them in float32 and lowers activations only.",
        gain=saving,
        evidence=[
            fact("weights", mebibytes(memory.total(Kind.WEIGHT, Kind.MASTER))),
            fact("gradients", mebibytes(memory.total(Kind.GRADIENT))),
            fact("optimizer state", mebibytes(memory.total(Kind.STATE))),
            fact("saved for backward", mebibytes(memory.total(Kind.SAVED))),
            fact(f"peak with {best.precision}", mebibytes(best.peak)),
        ],
        fix=f"This is what mixed precision does. Less takes {best.precision} (about {mebibytes(best.peak)} at the "
        "peak), an 8-bit optimizer, or sharding (FSDP).",
    )
