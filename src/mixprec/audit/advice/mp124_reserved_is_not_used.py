"""MP124: CUDA's allocator holds much more than tensors use."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MUCH = 1.3


def advise(report: AuditReport) -> Iterator[Advice]:
    """Only where both counters were read."""
    memory = report.memory
    if not memory.allocated or not memory.reserved or memory.reserved < MUCH * memory.allocated:
        return
    share = 1 - memory.allocated / memory.reserved
    yield piece(
        "MP124",
        Severity.INFO,
        f"Tensors used at most {mebibytes(memory.allocated)}; the allocator holds {mebibytes(memory.reserved)}, and "
        "that is what nvidia-smi shows.",
        gain=0.0,
        evidence=[fact("held but never used at once", percent(share))],
        fix="Compare torch.cuda.max_memory_allocated(). If out-of-memory errors come at this gap, it is fragmentation: "
        "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    )
