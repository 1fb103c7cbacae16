"""MP108: the step is slower in 16 bits than in float32 on this device, and its products are large enough."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, milliseconds, percent, piece
from mixprec.audit.advice._slower import slower, times
from mixprec.audit.advice.mp167_layers_too_small import too_small
from mixprec.records import Location, Severity

__all__ = ["advise"]


def advise(report: AuditReport) -> Iterator[Advice]:
    """Needs both times from one process; layers that are too small are MP167."""
    loss, pair = slower(report), times(report)
    if loss is None or pair is None or loss <= 0 or too_small(report):
        return
    low = report.timing.of(report.precision)
    kind = " of processor time" if report.device_type == "cpu" and low is not None and low.busy else ""
    yield piece(
        "MP108",
        Severity.WARNING,
        f"A step takes {milliseconds(pair[0])}{kind} in {report.precision} and {milliseconds(pair[1])} in float32 on "
        f"this device: float32 saves {percent(loss)}.",
        gain=loss,
        location=report.regions[0].location if report.regions else Location(),
        evidence=[
            fact(f"step in {report.precision}", 1e3 * pair[0], "ms"),
            fact("step in float32", 1e3 * pair[1], "ms"),
            fact("device", report.measured_on.name if report.measured_on else "unknown"),
        ],
        fix="Train in float32 on this device, or keep the slow ops out of the region.",
    )
