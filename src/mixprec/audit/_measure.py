"""The same step in another precision, by changing what the script's own autocast regions are entered with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from mixprec.audit._report import AuditReport, StepTime

__all__ = ["forced", "measured", "quick"]


def quick(seconds: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(seconds)[len(seconds) // 4]


def measured(
    step: Callable[[], Any], clock: Callable[[], float], report: AuditReport, count: int
) -> Iterator[StepTime]:
    """Times of the precisions that the step does not run in itself; a precision that raises is left out."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        if name == report.precision:
            continue
        region = forced(dtype, report.device_type, without_regions=not report.regions)
        with region, contextlib.suppress(RuntimeError, NotImplementedError):
            step()
            seconds = [clock() for _ in range(max(1, count))]
            yield StepTime(name, quick(seconds), len(seconds), "audit")


@contextlib.contextmanager
def forced(dtype: torch.dtype, device_type: str, *, without_regions: bool = False) -> Iterator[None]:
    """Every region of that device runs in `dtype`; float32 switches regions off.

    `without_regions` says that the code has none: all of it, backward too, then runs in one region.
    """
    enter = torch.autocast.__enter__
    wide = dtype is torch.float32

    def begin(region: torch.autocast) -> Any:
        if region.device != device_type or not region._enabled:
            return enter(region)  # type: ignore[no-untyped-call] # torch annotates none of it
        kept = region._enabled, region.fast_dtype
        region._enabled, region.fast_dtype = not wide, region.fast_dtype if wide else dtype
        try:
            return enter(region)  # type: ignore[no-untyped-call] # torch annotates none of it
        finally:
            region._enabled, region.fast_dtype = kept

    setattr(torch.autocast, "__enter__", begin)  # noqa: B010 # mypy forbids assigning to a method
    try:
        with torch.autocast(device_type, dtype) if without_regions and not wide else contextlib.nullcontext():
            yield
    finally:
        setattr(torch.autocast, "__enter__", enter)  # noqa: B010 # as above
