"""MP105: the same weights are cast again and again within one pass."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

OFTEN = 0.25
LEAST = 2**20
"""Share of the bytes of all casts, and bytes, from which repeated ones are more than information."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """Weights have a cache that should prevent it; activations have none, which is worth knowing."""
    casts = report.casts
    weights = [repeat for repeat in casts.repeats if repeat.what == "weight"]
    if weights and casts.bytes:
        extra, wasted = sum(repeat.extra for repeat in weights), sum(repeat.bytes for repeat in weights)
        share = wasted / casts.bytes
        often = share >= OFTEN and extra >= 2 * len(weights) and wasted >= LEAST
        region = max(report.regions, key=lambda r: r.count, default=None)
        reentered = region is not None and region.count > 1 and max(r.regions for r in weights) > 1
        yield piece(
            "MP105",
            Severity.WARNING if often else Severity.INFO,
            f"{len(weights)} weights are cast {extra} times more than once each per pass, {mebibytes(wasted)} read and "
            f"written for nothing ({percent(share)} of all casts): "
            + (
                "the region is entered again and again, and each exit empties its cache."
                if reentered
                else "the cache of the region is off, or was filled under no_grad."
            ),
            gain=share * _time_in_casts(report),
            location=region.location if region is not None and reentered else weights[0].location,
            evidence=[
                fact("casts per step", casts.count),
                fact("of these repeated", extra),
                fact("regions entered per step", region.count if region is not None else 0),
                fact("example", f"{weights[0].name} to {weights[0].target}"),
            ],
            fix="Enter one region around the whole forward pass and the loss, outside any loop, with its cache on.",
        )
    activations = [repeat for repeat in casts.repeats if repeat.what == "activation" and repeat.extra]
    wasted = sum(repeat.bytes for repeat in activations)
    if casts.bytes and wasted > casts.bytes / 20:
        yield piece(
            "MP105",
            Severity.INFO,
            f"{len(activations)} activations are cast once for each op that takes them, {mebibytes(wasted)} read and "
            "written more than needed.",
            gain=wasted / casts.bytes * _time_in_casts(report),
            location=activations[0].location,
            evidence=[fact("bytes", mebibytes(wasted))],
            fix="Cast once before the ops that share it, or use mixprec.autocast(policy=Policy.lean()), which does.",
        )


def _time_in_casts(report: AuditReport) -> float:
    """Casts as part of the bytes that the step moves."""
    moved = sum(row.bytes for row in report.ops) + report.casts.bytes
    return report.casts.bytes / moved if moved else 0.0
