"""MP126: kernels hold much memory of their own at the peak, which no tensor of the step accounts for."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, mebibytes, percent, piece
from mixprec.records import Severity

__all__ = ["advise"]

MUCH = 0.2
LEAST = 16 * 2**20
"""Share of the peak, and bytes, from which it is worth a word: cuBLAS alone keeps up to 32 MiB on a Hopper GPU."""


def advise(report: AuditReport) -> Iterator[Advice]:
    """Only where it was measured, by the allocator's counters or the profiler."""
    memory = report.memory
    if not memory.inside:
        return
    whole = memory.peak + memory.inside
    share = memory.inside / whole
    rows = sorted((row for row in report.products.layers if _by_library(row.op)), key=lambda row: -row.flops)
    if share < MUCH or memory.inside < LEAST or not rows:
        return
    yield piece(
        "MP126",
        Severity.INFO,
        f"{percent(share)} of the peak of {mebibytes(whole)} is no tensor of the step: work space that kernels of "
        f"{rows[0].op} and the like allocate inside, or what the script holds elsewhere.",
        gain=share,
        location=rows[0].location,
        evidence=[
            fact("tensors at the peak", mebibytes(memory.peak)),
            fact("more at the allocator's peak", mebibytes(memory.inside)),
            fact("torch.backends.cudnn.benchmark", report.flags.cudnn_benchmark),
        ],
        fix=_fix(report),
    )


def _by_library(op: str) -> bool:
    return "conv" in op or op in ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _fix(report: AuditReport) -> str:
    if report.device_type != "cuda":
        return "On a CPU it is oneDNN's and goes with the batch: use smaller micro-batches where it matters."
    benchmark = "Switch torch.backends.cudnn.benchmark off, which prefers algorithms with more work space. "
    limits = "CUBLAS_WORKSPACE_CONFIG=:4096:2 bounds cuBLAS's for each handle and stream."
    return (benchmark if report.flags.cudnn_benchmark else "") + limits
