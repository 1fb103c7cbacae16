"""MP167: products are so small that casts and calls cost more than 16 bits can save."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, percent, piece
from mixprec.audit.advice._slower import slower, times
from mixprec.records import Location, Severity

__all__ = ["advise", "too_small"]

TINY = 10e6
"""FLOPs of a product that a GPU of 2020 does in 0.1 µs in 16 bits, a fiftieth of what it takes to launch it."""


def too_small(report: AuditReport) -> bool:
    """Whether the typical product is tiny."""
    return 0 < report.products.typical < TINY


def advise(report: AuditReport) -> Iterator[Advice]:
    """A warning where a float32 control in the same process was faster; otherwise worth knowing."""
    if not report.mixed or not too_small(report):
        return
    loss, pair = slower(report), times(report)
    measured = loss is not None and loss > 0 and pair is not None
    evidence = [
        fact("FLOPs of a typical product", report.products.typical),
        fact("products per step", report.products.count),
        fact("casts per step", report.casts.count),
    ]
    if pair is not None:
        evidence += [fact(f"step in {report.precision}", 1e3 * pair[0], "ms")]
        evidence += [fact("step in float32", 1e3 * pair[1], "ms")]
    yield piece(
        "MP167",
        Severity.WARNING if measured else Severity.INFO,
        f"A typical product has {report.products.typical:,} FLOPs, too few to gain from 16 bits what "
        f"{report.casts.count} casts and the calls cost"
        + (f"; float32 is faster here by {percent(loss or 0.0)}." if measured else "."),
        gain=max(0.0, loss or 0.0),
        location=report.regions[0].location if report.regions else Location(),
        evidence=evidence,
    )
