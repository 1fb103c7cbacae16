"""MP086: a float32 constant turns 16-bit activations back into float32."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mixprec.audit._ops import Promotion
from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MATTERS = 0.1
"""Share of all bytes written in forward from which it is more than information."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """One finding per line that promotes; promotions by data (residuals, targets) are the script's own choice."""
    written = sum(row.bytes for row in report.ops if row.phase == "forward")
    lines: dict[tuple[str | None, int | None], list[Promotion]] = defaultdict(list)
    for promotion in report.promotions:
        if promotion.constant and written:
            lines[promotion.location.file, promotion.location.line].append(promotion)
    for promotions in lines.values():
        yield _finding(promotions, written)


def _finding(promotions: list[Promotion], written: int) -> Advice:
    first = promotions[0]
    behind = sum(promotion.behind for promotion in promotions)
    share = behind / written
    others = f" (and {len(promotions) - 1} more at this line)" if len(promotions) > 1 else ""
    return piece(
        "MP086",
        Severity.WARNING if share >= MATTERS and first.inside else Severity.INFO,
        f"{first.op} of 16-bit activations with {first.by}{others} gives float32, and so do the ops behind it: "
        f"{percent(share)} of what forward writes.",
        gain=share / 2,
        location=first.location,
        evidence=[
            fact("float32 results behind the promotion", mebibytes(behind)),
            fact("of these kept for backward", mebibytes(sum(promotion.kept for promotion in promotions))),
            fact("share of the bytes written in forward", share),
        ],
        fix=f"Cast it where it is used, {_cast(first.by)}, or store it in the compute dtype.",
    )


def _cast(by: str) -> str:
    name = by.split("'")[1].rpartition(".")[2] if "'" in by else "mask"
    return f"as in `{name}.to(x.dtype)`"
