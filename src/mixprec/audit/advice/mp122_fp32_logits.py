"""MP122: a 16-bit result as wide as a vocabulary is kept in float32 as well."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

WIDE = 1000
"""Elements in the last dimension from which a tensor is called logits."""

LARGE = 2 * 2**20


def advise(report: AuditReport) -> Iterator[Advice]:
    """Looks at the largest tensors that are not owned by anybody."""
    memory = report.memory
    wide = [s for s in memory.largest if s.dtype == "float32" and s.shape and s.shape[-1] >= WIDE and len(s.shape) > 1]
    halves = {row.shape for row in memory.largest if row.dtype in ("float16", "bfloat16")}
    logits = [s for s in wide if any(_same(s.shape, half) for half in halves) and s.op not in ("linear", "addmm", "mm")]
    if not report.mixed or not report.trains or not logits:
        return
    size = sum(single.bytes for single in logits)
    share = min(1.0, size / memory.peak) if memory.peak else 0.0
    first = logits[0]
    yield piece(
        "MP122",
        Severity.WARNING if share >= 0.2 and size >= LARGE else Severity.INFO,
        f"{len(logits)} float32 tensors of {' × '.join(map(str, first.shape))} stand at the loss, beside the 16-bit "
        f"logits: {mebibytes(size)}, {percent(share)} of the peak.",
        gain=share / 2,
        location=first.location,
        evidence=[fact(f"{s.op} {' × '.join(map(str, s.shape))}", mebibytes(s.bytes)) for s in logits[:4]],
        fix="Compute the loss in chunks of tokens or with a fused linear cross entropy, so that the logits never exist "
        "in full; do not call .float() on them.",
    )


def _same(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Same elements with the same last dimension, whatever was flattened."""
    count = 1
    for size in shape:
        count *= size
    total = 1
    for size in other:
        total *= size
    return bool(other) and shape[-1] == other[-1] and count == total
