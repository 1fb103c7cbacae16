"""How much slower a step was in 16 bits than in float32, where both were measured in one process."""

from __future__ import annotations

from mixprec.audit._report import AuditReport

__all__ = ["MARGIN", "slower", "times"]

MARGIN = 1.25
"""Times of short runs on a shared machine that differ by less than a quarter are the same."""


def times(report: AuditReport) -> tuple[float, float] | None:
    """(16-bit, float32) seconds per step, on a CPU those of its threads; None where one was not measured."""
    low, wide = report.timing.of(report.precision), report.timing.of("float32")
    if not report.mixed or low is None or wide is None or low is wide:
        return None
    if report.device_type == "cpu" and low.busy and wide.busy:
        return low.busy, wide.busy
    return low.seconds, wide.seconds


def slower(report: AuditReport) -> float | None:
    """The part of the 16-bit step that float32 would save; negative where 16-bit is faster; None: not measured."""
    pair = times(report)
    if pair is None:
        return None
    low, wide = pair
    return (low - wide) / low if low > wide * MARGIN or low < wide / MARGIN else 0.0
