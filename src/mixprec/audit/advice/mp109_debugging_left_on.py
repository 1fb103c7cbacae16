"""MP109: switches for debugging were on while the steps ran."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, piece
from mixprec.records import Severity

__all__ = ["advise"]


def advise(report: AuditReport) -> Iterator[Advice]:
    """Anomaly detection is for debugging only; deterministic algorithms may be wanted."""
    flags = report.flags
    if flags.anomaly:
        yield piece(
            "MP109",
            Severity.WARNING,
            "Anomaly detection is on: autograd records a stack for every op and checks every gradient.",
            gain=0.4,
            location=flags.anomaly_at,
            evidence=[fact("torch.is_anomaly_enabled()", True), fact("checks for NaN", flags.anomaly_checks_nan)],
            fix="Switch it off when you are done debugging; `mixprec doctor` finds the op without it.",
        )
    if flags.deterministic:
        yield piece(
            "MP109",
            Severity.INFO,
            "Deterministic algorithms are on; some ops have slower kernels then.",
            gain=0.05,
            location=flags.deterministic_at,
            evidence=[fact("torch.are_deterministic_algorithms_enabled()", True)],
        )
    if flags.profiling:
        yield piece(
            "MP109",
            Severity.INFO,
            "A profiler was recording while the steps ran.",
            gain=0.05,
            evidence=[fact("profiler", True)],
        )
