"""What was seen of modules and of their parameters' gradients becomes one record per module path."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from mixprec.monitor._headroom_bits import extreme, headroom
from mixprec.monitor._record import ModuleRecord
from mixprec.monitor._samples import GRADIENT_COUNTS
from mixprec.monitor._steps import ClosedStep

__all__ = ["module_records", "shares"]

Found = Mapping[Hashable, Sequence[float]]
Counts = dict[str, dict[str, float]]
"""By path: elements sampled (`of`) and how many are of each kind of `GRADIENT_COUNTS`."""


def module_records(step: ClosedStep, found: Found, format_name: str, scale: float | None) -> dict[str, ModuleRecord]:
    """Every module of a step that was looked at."""
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, dtype in step.traces.dtypes.items():
        low, high = _lowest(found[("low", path)]), _highest(found[("high", path)])
        values[path].update(dtype=dtype, low=low, high=high, headroom=headroom(dtype, low, high))
    for path, dtype in step.traces.grad_dtypes.items():
        values[path].update(grad_dtype=dtype, grad_headroom=headroom(dtype, *found[("grad", path)]))
    for path, counts in _output_counts(step, found).items():
        tiny = "subnormal_bf16" if values[path].get("grad_dtype") == "bf16" else "subnormal"
        values[path].update(zero=counts["zero"] / counts["of"], subnormal=counts[tiny] / counts["of"])
    for path, counts in _weight_counts(step, found).items():
        tiny = "subnormal_bf16" if format_name == "bf16" else "subnormal"
        values[path].update(weight_zero=counts["zero"] / counts["of"], weight_subnormal=counts[tiny] / counts["of"])
    for path, amax in _weight_extremes(step, found, scale).items():
        values[path]["weight_headroom"] = headroom(format_name, amax)
    return {path: ModuleRecord(**fields) for path, fields in values.items()}


def shares(step: ClosedStep, found: Found) -> dict[str, float]:
    """Shares of all sampled parameter gradients that are of each kind; empty where none were sampled."""
    totals: dict[str, float] = defaultdict(float)
    for counts in _weight_counts(step, found).values():
        for kind, count in counts.items():
            totals[kind] += count
    return {kind: totals[kind] / totals["of"] for kind in GRADIENT_COUNTS} if totals else {}


def _lowest(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else min(values)


def _highest(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values)


def _output_counts(step: ClosedStep, found: Found) -> Counts:
    return _by_owner(step.traces.sampled, found.get("module_counts", ()))


def _weight_counts(step: ClosedStep, found: Found) -> Counts:
    together: Counts = {}
    for read in step.gradients:
        owners = [(_module_of(name), size) for name, size in read.sampled]
        for path, counts in _by_owner(owners, found.get(("grad_counts", read.key), ())).items():
            before = together.setdefault(path, defaultdict(float))
            for kind, count in counts.items():
                before[kind] += count
    return together


def _by_owner(owners: Sequence[tuple[str, int]], numbers: Sequence[float]) -> Counts:
    """`numbers` holds the counts of each kind, owner after owner; an owner may come repeatedly."""
    found: Counts = {}
    width = len(GRADIENT_COUNTS)
    for place, (path, size) in enumerate(owners):
        counts = found.setdefault(path, defaultdict(float))
        counts["of"] += size
        for column, kind in enumerate(GRADIENT_COUNTS):
            counts[kind] += numbers[place * width + column]
    return found


def _weight_extremes(step: ClosedStep, found: Found, scale: float | None) -> dict[str, float]:
    """The largest magnitude of each module's parameter gradients, as the loss scale multiplied them."""
    found_by: dict[str, list[float]] = defaultdict(list)
    for read in step.gradients:
        ends = found.get(("grad_amax", read.key), ())
        factor = 1.0 if read.scaled else scale or 1.0
        for (name, _), end in zip(read.sampled, _pairs(ends), strict=True):
            found_by[_module_of(name)].append(extreme(end) * factor)
    return {path: extreme(values) for path, values in found_by.items()}


def _pairs(values: Sequence[float]) -> Iterable[tuple[float, float]]:
    return zip(values[::2], values[1::2], strict=True)


def _module_of(parameter: str) -> str:
    return parameter.rpartition(".")[0] or "(model)"
