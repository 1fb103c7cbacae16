"""MP080: there is a region, and nearly all products run outside of it."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._products import Why
from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

NEARLY_ALL = 0.9
HALF = 0.5


def advise(report: AuditReport) -> Iterator[Advice]:
    """Only float32 products count: what is 16-bit already needs no region. An island is made on purpose."""
    outside = [row for row in report.products.layers if row.why_not == Why.OUTSIDE and row.dtype == "float32"]
    share = sum(row.share for row in outside)
    regions = [region for region in report.regions if region.dtype]
    if not regions or share < HALF:
        return
    islands = [region for region in report.regions if region.island]
    where = "where the script switches autocast off" if islands else "outside the autocast region"
    yield piece(
        "MP080",
        Severity.WARNING if share >= NEARLY_ALL and not islands else Severity.INFO,
        f"{percent(share)} of the FLOPs are in float32 products {where}, {outside[0].op} in "
        f"{outside[0].module or 'the step'} the most.",
        gain=share * 0.5,
        location=(islands or regions)[0].location,
        evidence=[
            fact("share of FLOPs outside the region", share),
            fact("share of FLOPs in 16 bits", report.products.low_share),
        ],
        fix="Make the island in float32 smaller, or expect no speed-up."
        if islands
        else "Let the region begin before the model is called and end after the loss.",
    )
