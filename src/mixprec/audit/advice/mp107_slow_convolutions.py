"""MP107: convolutions on a GPU with cuDNN's search off."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]


def advise(report: AuditReport) -> Iterator[Advice]:
    """Only for what ran on CUDA: elsewhere the switch means nothing."""
    rows = [row for row in report.products.layers if "conv" in row.op]
    share = sum(row.share for row in rows)
    if report.device_type != "cuda" or report.flags.cudnn_benchmark or share < 0.5:
        return
    yield piece(
        "MP107",
        Severity.INFO,
        f"{percent(share)} of the FLOPs are convolutions, and torch.backends.cudnn.benchmark is off.",
        gain=0.05,
        location=rows[0].location,
        evidence=[fact("share of convolutions", share)],
    )
