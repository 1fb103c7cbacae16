"""MP102: the device waits for data, or for the host to issue its ops."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, milliseconds, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

WAITING = 0.3
LONG = 1e-2
"""Share of a step, and seconds, spent in the DataLoader from which it is more than information."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """Waiting for data is measured; the host is a forecast, and a fact on the GPU that ran."""
    share = report.timing.data_share
    if share is not None and share >= 0.1:
        yield piece(
            "MP102",
            Severity.WARNING if share >= WAITING and share * _step(report) >= LONG else Severity.INFO,
            f"{percent(share)} of a step is spent waiting for the DataLoader, in any precision.",
            gain=share,
            location=report.timing.data_at,
            evidence=[fact("share of the step in the DataLoader", share)],
            fix="Give the DataLoader workers (num_workers=, persistent_workers=True, pin_memory=True for a GPU), or "
            "prepare the data once and ahead of training.",
        )
    bound = report.bound
    if report.mixed and bound.host_bound:
        yield piece(
            "MP102",
            Severity.INFO,
            f"On {bound.device} this step would wait for the host: its work takes {milliseconds(bound.low)} at peak "
            f"rates, issuing its ops about {milliseconds(bound.host_low)}, so no precision makes it faster.",
            gain=1 - bound.low / bound.host_low if bound.host_low else 0.0,
            evidence=[
                fact("device time at peak rates", 1e3 * bound.low, "ms"),
                fact("host time at 5 µs per op", 1e3 * bound.host_low, "ms"),
            ],
            fix="Use larger batches, torch.compile, or CUDA graphs.",
        )


def _step(report: AuditReport) -> float:
    """Seconds of a step in the precision that was watched."""
    measured = report.timing.of(report.low or report.precision)
    return measured.seconds if measured is not None else 0.0
