"""`audit(model, step)`: run a few real steps, watch one of them, and say where memory and time go."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from mixprec._hardware import probe
from mixprec._policy import Policy
from mixprec._taps import listen
from mixprec.audit._assemble import assemble
from mixprec.audit._counters import profiled_peak, with_counters, with_inside
from mixprec.audit._flags import flags_now
from mixprec.audit._log import Mark, Step
from mixprec.audit._measure import measured, quick
from mixprec.audit._record import Recording, existing_optimizers
from mixprec.audit._report import AuditReport, StepTime, Timing
from mixprec.audit._steps import cut_at
from mixprec.audit.advice import advise
from mixprec.errors import InvalidValueError, MisuseError

__all__ = ["audit"]


def audit(
    model: nn.Module,
    step: Callable[[], Any],
    *,
    warmup: int = 2,
    timed: int = 5,
    measure: bool = False,
    accelerator: str | None = None,
    policy: Policy | None = None,
) -> AuditReport:
    """Audits `step`, a function without arguments that runs one training step (or one forward pass) of `model`.

    `step` is called `warmup` times, then `timed` times under the clock, then once under watch. With `measure` also
    `timed` times in float32, float16 and bfloat16, by overriding the dtype of the autocast regions that it enters, and
    on a CPU once under PyTorch's profiler, which sees what kernels allocate inside. On a GPU the peaks of its memory
    counters are reset.
    `accelerator` is a name that `mixprec device` lists: what the bound is for, by default the device that runs the
    steps, or an A100 where that is a CPU. `policy` explains the ops, by default PyTorch's own list.

    Every call is a real step: it trains. What runs between two calls is not seen.

    Raises: MisuseError where nothing ran, UnknownNameError for the accelerator; whatever `step` raises.

    **Cost**: `warmup` + `timed` + 1 steps (three times `timed` and one more with `measure`). The watched one takes some
    40 µs more per op, and a synchronisation per timed step on a GPU.

    ```python
    report = audit(model, lambda: train_step(model, optimizer, batch))
    for finding in report.findings:
        print(finding.code, finding.message)
    ```
    """
    if warmup < 0 or timed < 0:
        raise InvalidValueError("warmup" if warmup < 0 else "timed", min(warmup, timed), "a number, 0 or more")
    recording = Recording()
    for _ in range(warmup):
        step()
    device = _device_of(model)
    seconds = [_timed(step, device) for _ in range(timed)]
    highest = profiled_peak(step) if measure and device.type == "cpu" else None
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    watched = _watched(recording, model, step)
    report = assemble(
        watched,
        traits=probe(device),
        flags=recording.flags or flags_now(),
        policy=policy,
        accelerator=accelerator,
        notes=[f"not recorded: {problem}" for problem in recording.problems],
    )
    rows = [StepTime(report.precision, quick(seconds), timed)] if seconds else []
    if measure:
        rows += measured(step, lambda: _timed(step, device), report, timed)
    memory = with_inside(with_counters(report.memory, device), watched, highest)
    report = replace(report, timing=Timing(tuple(rows)), memory=memory)
    return replace(report, findings=advise(report))


def _watched(recording: Recording, model: nn.Module, step: Callable[[], Any]) -> Step:
    """One step as events."""
    gc.collect()
    watch = recording.watch
    for optimizer in existing_optimizers(model.parameters()):
        recording.number(optimizer)
    watch.modules.add_root(model)
    watch.mark("begin", held=recording.all_owned())
    begin = len(watch.events)
    with listen(recording):
        watch.start(model)
        try:
            step()
        finally:
            watch.stop()
    if not any(not isinstance(event, Mark) for event in watch.events[begin:]):
        raise MisuseError(
            "MP111", "step", "The step ran no op, so there is nothing to audit; pass a function that runs one."
        )
    if not any(isinstance(e, Mark) and e.what == "step" for e in watch.events):
        watch.mark("end", held=recording.all_owned())
    return cut_at(watch.events, watch.storages, [begin - 1, len(watch.events) - 1])[-1]


def _timed(step: Callable[[], Any], device: torch.device) -> float:
    _wait(device)
    begin = time.perf_counter()
    step()
    _wait(device)
    return time.perf_counter() - begin


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device_of(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
