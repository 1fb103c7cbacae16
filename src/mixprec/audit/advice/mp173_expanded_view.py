"""MP173: a cast of an expanded view wrote a copy per repetition."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, piece
from mixprec.records import Severity

__all__ = ["advise"]

FACTOR = 4
LARGE = 2**20


def advise(report: AuditReport) -> Iterator[Advice]:
    """One finding per line."""
    seen: set[tuple[str | None, int | None]] = set()
    for spread in report.casts.spreads:
        place = (spread.location.file, spread.location.line)
        if place in seen or spread.written < FACTOR * spread.held:
            continue
        seen.add(place)
        share = spread.written / report.memory.peak if report.memory.peak else 0.0
        yield piece(
            "MP173",
            Severity.WARNING if spread.written >= LARGE or share >= 0.2 else Severity.INFO,
            f"The cast of an expanded view of {' × '.join(map(str, spread.shape))} to {spread.target} writes "
            f"{mebibytes(spread.written)}, where its values take {mebibytes(spread.held)}.",
            gain=share,
            location=spread.location,
            evidence=[
                fact("bytes behind the view", spread.held),
                fact("bytes written", spread.written),
                fact("share of the peak", share),
            ],
            fix="Cast before expand(), or let matmul broadcast instead of expanding.",
        )
