"""MP101: sizes of products are no multiples of 8 although they could be at little cost."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._products import LayerRow
from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MATTERS = 0.25
"""Share of the FLOPs in such products from which it is more than information."""


SMALL = 1e6
"""FLOPs of a product below which its alignment does not matter."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """One finding, at the layer with the most FLOPs, that lists the sizes to use."""
    if not report.mixed:
        return
    rows = [row for row in report.products.layers if row.worth and row.dtype in ("float16", "bfloat16")]
    if not rows:
        return
    share = sum(row.share for row in rows)
    sizes = dict(pair for row in rows for pair in zip(row.unaligned, row.padded, strict=True))
    listed = ", ".join(f"{size} to {to}" for size, to in sorted(sizes.items(), reverse=True)[:6])
    yield piece(
        "MP101",
        Severity.WARNING if share >= MATTERS and report.products.typical >= SMALL else Severity.INFO,
        f"{percent(share)} of the FLOPs are in products with a size that is no multiple of 8, which matrix units run "
        f"slower. Pad {listed}.",
        gain=share * _slack(report),
        location=rows[0].location,
        evidence=[fact(_layer(row), " × ".join(map(str, row.unaligned)), "not aligned") for row in rows[:6]],
        fix=f"Pad {listed} (multiples of 64 are better still where they cost little); for a vocabulary, add tokens "
        "that are never used. This costs speed on a GPU and nothing on a CPU.",
    )


def _layer(row: LayerRow) -> str:
    return f"{row.module or row.op} ({row.cls or row.op})"


def _slack(report: AuditReport) -> float:
    """The part of the device's time that products take, so the most that faster ones can save."""
    return report.bound.product_share * 0.5
