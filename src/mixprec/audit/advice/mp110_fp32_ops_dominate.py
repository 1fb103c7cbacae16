"""MP110: ops on the float32 list write most of what the region writes."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec._policy import CastRule
from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MUCH = 0.3


def advise(report: AuditReport) -> Iterator[Advice]:
    """Counted by the bytes of results and casts in forward."""
    if not report.mixed:
        return
    forward = [row for row in report.ops if row.phase == "forward"]
    total = sum(row.bytes + row.cast_bytes for row in forward)
    listed = [row for row in forward if row.rule in (CastRule.FP32.value, CastRule.FP32_OUT.value)]
    share = sum(row.bytes + row.cast_bytes for row in listed) / total if total else 0.0
    if share < MUCH:
        return
    top = max(listed, key=lambda row: row.bytes + row.cast_bytes)
    yield piece(
        "MP110",
        Severity.INFO,
        f"Ops that this device's list runs in float32 write {percent(share)} of what forward writes, "
        f"{top.op} the most.",
        gain=share / 4,
        location=top.location,
        evidence=[fact("share of bytes", share), fact("largest", top.op)],
        fix="Use fused forms (scaled_dot_product_attention, fused norms), or Policy.lean(), which stores norms and "
        "softmax in 16 bits.",
    )
