"""MP124: CUDA's allocator holds much more than tensors use."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MUCH = 1.3
"""Held by the allocator for each byte in use, from which it is worth a word."""

FRAGMENTED = 0.2
"""Share of what the allocator holds that is free in split blocks, from which fragmentation is the cause."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """Only where the counters were read; expandable segments only where fragmentation was measured."""
    memory = report.memory
    if not memory.allocated or not memory.reserved or memory.reserved < MUCH * memory.allocated:
        return
    share = 1 - memory.allocated / memory.reserved
    split = (memory.fragmented or 0) / memory.reserved
    fix = "Compare torch.cuda.max_memory_allocated()."
    if split >= FRAGMENTED:
        fix += (
            f" {percent(split)} of it is free in pieces between tensors, which is fragmentation: where out-of-memory "
            "errors come at this gap, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )
    yield piece(
        "MP124",
        Severity.INFO,
        f"Tensors used at most {mebibytes(memory.allocated)}; the allocator holds {mebibytes(memory.reserved)}, and "
        "that is what nvidia-smi shows.",
        gain=0.0,
        evidence=[fact("held but never used at once", percent(share)), fact("free in split blocks", percent(split))],
        fix=fix,
    )
