"""MP111: the script times work that the device has not done yet when the clock is read."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, piece
from mixprec.records import Severity

__all__ = ["advise"]


def advise(report: AuditReport) -> Iterator[Advice]:
    """One finding per line that reads the clock too early; on a CPU there is none."""
    for row in report.clocks:
        yield piece(
            "MP111",
            Severity.INFO,
            "The clock is read here while the device still works on what was asked for since line "
            f"{row.begin.line}: the difference is the time that the host took to ask.",
            gain=0.0,
            location=row.end,
            evidence=[fact("FLOPs asked for in between", float(row.flops)), fact("waits in between", 0)],
            fix="Call torch.cuda.synchronize() before each reading, or use torch.cuda.Event or torch.utils.benchmark; "
            "leave the first steps out.",
        )
