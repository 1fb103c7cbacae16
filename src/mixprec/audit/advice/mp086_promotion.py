"""MP086: a float32 constant turns 16-bit activations back into float32."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MATTERS = 0.1
"""Share of all bytes written in forward from which it is more than information."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """One finding per line that promotes; promotions by data (residuals, targets) are the script's own choice."""
    written = sum(row.bytes for row in report.ops if row.phase == "forward")
    for promotion in report.promotions:
        if not promotion.constant or not written:
            continue
        share = promotion.behind / written
        yield piece(
            "MP086",
            Severity.WARNING if share >= MATTERS and promotion.inside else Severity.INFO,
            f"{promotion.op} of 16-bit activations with {promotion.by} gives float32, and so do the ops behind it: "
            f"{percent(share)} of what forward writes.",
            gain=share / 2,
            location=promotion.location,
            evidence=[
                fact("float32 results behind the promotion", mebibytes(promotion.behind)),
                fact("of these kept for backward", mebibytes(promotion.kept)),
                fact("share of the bytes written in forward", share),
            ],
            fix=f"Cast it where it is used, {_cast(promotion.by)}, or store it in the compute dtype.",
        )


def _cast(by: str) -> str:
    name = by.split("'")[1] if "'" in by else "mask"
    return f"as in `{name}.to(x.dtype)`"
