"""What the allocator itself says about a step, beside what the audit counts: the difference is inside of kernels.

On CUDA the counters are PyTorch's; a CPU has none, so a step is run once more under the profiler, which sees every
allocation, those of oneDNN too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from mixprec.audit._log import Freed, Step
from mixprec.audit._memory import Memory

__all__ = ["profiled_peak", "with_counters", "with_inside"]


def with_counters(memory: Memory, device: torch.device) -> Memory:
    """`memory` with CUDA's counters since the last reset of the peaks; as it is on other devices. No host sync."""
    if device.type != "cuda":
        return memory
    allocated = torch.cuda.max_memory_allocated(device)
    return replace(
        memory,
        allocated=allocated,
        reserved=torch.cuda.max_memory_reserved(device),
        fragmented=torch.cuda.memory_stats(device).get("inactive_split_bytes.all.current", 0),
        inside=max(0, allocated - memory.peak),
    )


def with_inside(memory: Memory, step: Step, highest: int | None) -> Memory:
    """`memory` of a CPU with what kernels held: `highest` are the bytes that a step added at its peak, None unknown.

    The profiler does not see the end of what was there before, such as gradients that a step begins by clearing.
    """
    if highest is None:
        return memory
    stay = step.alive - {event.storage for event in step.events if isinstance(event, Freed)}
    there = sum(s.bytes for n, s in step.storages.items() if n in stay and s.device == memory.device)
    return replace(memory, inside=max(0, there + highest - memory.peak))


def profiled_peak(step: Callable[[], Any]) -> int | None:
    """Bytes that `step` has allocated at most beyond what there was; None where a profiler is running already.

    **Cost**: one step, and the profiler's own time.
    """
    if torch._C._autograd._profiler_enabled():
        return None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    if results is None:
        return None
    now = highest = 0
    for event in sorted((e for e in results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest
