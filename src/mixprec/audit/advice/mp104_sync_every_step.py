"""MP104: the host waits for the device in the middle of a step, or many times."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit._syncs import SyncRow
from mixprec.audit.advice._advice import Advice, fact, piece
from mixprec.records import Severity

__all__ = ["advise"]

MANY = 6
"""Reads per step from which they are more than information: a step is queued in far fewer pieces."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """A few reads around the loss are how most loops log; one inside the model, or many, drain the queue."""
    rows = [row for row in report.syncs if row.by_script]
    count = sum(row.count for row in rows if row.of_model or row.in_forward)
    for row in rows:
        many = row.of_model and count >= MANY and row.count * 4 >= count
        severity = Severity.WARNING if (row.in_forward and not _implied(row)) or many else Severity.INFO
        when = "while more work of the step is still to be queued" if row.early else "in every step"
        yield _finding(report, row, severity, count, when)


def _implied(row: SyncRow) -> bool:
    """Whether indexing by a mask asked, which has no equal without a sync where the size is needed."""
    return all(what in ("__getitem__", "__setitem__", "index", "nonzero") for what in row.what.split(", "))


def _finding(report: AuditReport, row: SyncRow, severity: Severity, count: int, when: str) -> Advice:
    times = "once" if row.count == 1 else f"{row.count} times"
    return piece(
        "MP104",
        severity,
        f"The host reads a value from the device {times} {when} ({row.what}); a GPU runs dry at each.",
        gain=min(0.5, 0.02 * row.count) * (2 if row.early else 1),
        location=row.location,
        evidence=[fact("reads at this line per step", row.count), fact("reads per step in all", count)],
        fix="Keep the value on the device (torch.where instead of if, a running tensor instead of .item()) and read it "
        "every so many steps, or one step late.",
    )
