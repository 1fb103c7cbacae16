"""MP100: the device that ran has no units for the dtype of the regions."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec._hardware import recommend
from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice, fact, piece
from mixprec.audit.advice._slower import slower
from mixprec.audit.advice.mp167_layers_too_small import too_small
from mixprec.records import Severity

__all__ = ["advise"]


def advise(report: AuditReport) -> Iterator[Advice]:
    """On a CPU it is a warning only where the time was measured: a CPU is often just the rehearsal of a GPU."""
    traits = report.measured_on
    if traits is None or not report.mixed or _native(report):
        return
    loss = slower(report)
    measured = loss is not None and loss > 0 and not too_small(report)
    name = traits.name or traits.kind
    yield piece(
        "MP100",
        Severity.WARNING if measured or traits.kind != "cpu" else Severity.INFO,
        f"{name} has no units for {report.precision}; PyTorch emulates it.",
        gain=loss if loss is not None and measured else 0.0,
        location=report.regions[0].location if report.regions else None,
        evidence=[fact("device", name), fact("recommended mode", recommend(traits).mode)],
        fix=f"Train in {recommend(traits).mode} here: {recommend(traits).reason}.",
    )


def _native(report: AuditReport) -> bool:
    traits = report.measured_on
    assert traits is not None
    if traits.kind == "cpu":
        wanted = {"bfloat16": {"AVX512_BF16", "AMX_BF16", "ARM_BF16"}, "float16": {"AMX_FP16", "AVX512_FP16"}}
        return bool(traits.features & wanted[report.precision])
    mode = recommend(traits).mode
    return mode == "bf16-mixed" or (mode == "fp16-mixed" and report.precision == "float16")
