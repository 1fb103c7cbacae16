"""MP106: most of the time goes into ops that move bytes, not into products."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

SMALL = 0.3


def advise(report: AuditReport) -> Iterator[Advice]:
    """A forecast from FLOPs and bytes, and so information."""
    share = report.bound.product_share
    if not report.mixed or share >= SMALL:
        return
    yield piece(
        "MP106",
        Severity.INFO,
        f"On {report.bound.device} at peak rates, products would take {percent(share)} of a step; the rest moves "
        "bytes, where 16 bits gain at most a factor of two.",
        gain=0.0,
        evidence=[fact("share of products in device time", share)],
    )
