"""What an arm says, in the words that judges use: did it fail, which skips are benign, what was in 16 bits.

A skip at the start is the scale finding its place and one right after a growth is a probe: neither is a fault. What
is left, a loss or weights that are not finite, or a scale far below what FP16 needs, is a failure.
"""

from __future__ import annotations

import linecache
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mixprec.doctor._arm import Arm, Event, Examination, OptimizerRecord, RegionRecord, ScalerRecord, StepRecord
from mixprec.records import Location

__all__ = [
    "CALM_SCALE",
    "Failure",
    "Skips",
    "computes_low",
    "courses",
    "event_run",
    "failure",
    "finite_loss",
    "learns_less",
    "losses",
    "low_dtype",
    "low_regions",
    "median",
    "observed",
    "optimizer_of",
    "raised_alike",
    "scalers_in_use",
    "script_lines",
    "site_of_conversion",
    "skips",
    "sound",
    "statement_at",
    "text_of",
    "trains_half_weights",
]

CALM_SCALE = 64.0
"""A scale that settles below this after overflows at the start is not a warm-up: gradients hardly ever need it."""

LOW = ("float16", "bfloat16")


@dataclass(frozen=True)
class Failure:
    """How and when an arm failed. `how`: raised, loss, weights, skips, scale, forward, gradients."""

    how: str
    iteration: int
    detail: str = ""


@dataclass(frozen=True)
class Skips:
    """The skipped steps of one optimizer, by kind; `settled` is the scale of the first step that was applied."""

    attempts: int
    warm_up: int
    probes: int
    others: tuple[StepRecord, ...]
    settled: float | None

    @property
    def total(self) -> int:
        return self.warm_up + self.probes + len(self.others)


def observed(examination: Examination) -> Arm | None:
    """The run of the script as it is."""
    return examination.arms[0] if examination.arms else None


def courses(arm: Arm) -> Iterator[tuple[StepRecord, ...]]:
    """The finished steps of each optimizer on each rank."""
    for rank, optimizer in sorted({(step.rank, step.optimizer) for step in arm.steps}):
        steps = tuple(step for step in arm.of(optimizer, rank) if step.finished)
        if steps:
            yield steps


def skips(steps: Iterable[StepRecord]) -> Skips:
    """The skips among one optimizer's steps."""
    steps = tuple(steps)
    warm_up = next((n for n, step in enumerate(steps) if not step.skipped), len(steps))
    probes = 0
    others: list[StepRecord] = []
    for before, step in zip(steps[warm_up:], steps[warm_up + 1 :], strict=False):
        if not step.skipped:
            continue
        grown = before.scale is not None and step.scale is not None and step.scale > before.scale
        if grown:
            probes += 1
        else:
            others.append(step)
    settled = steps[warm_up].scale if warm_up < len(steps) else None
    return Skips(len(steps), warm_up, probes, tuple(others), settled)


def failure(arm: Arm | None) -> Failure | None:
    """The first thing in an arm that no healthy run shows; None where there is none, or no arm."""
    if arm is None:
        return None
    found = [*_failures_of_steps(arm), *_failures_of_modules(arm)]
    if arm.crash is not None:
        found.append(Failure("raised", arm.crash.iteration, f"{arm.crash.kind}: {arm.crash.message}"))
    return min(found, key=lambda failure: failure.iteration, default=None)


def sound(arm: Arm | None) -> bool:
    """Whether an arm was run, came to its end and failed nowhere; one that ran out of time says nothing."""
    return arm is not None and arm.ended in ("finished", "stopped") and failure(arm) is None


def finite_loss(step: StepRecord) -> bool:
    """Whether nothing is known against the step's loss."""
    return step.loss is None or math.isfinite(step.loss)


def _failures_of_steps(arm: Arm) -> Iterator[Failure]:
    for steps in courses(arm):
        began = skips(steps).warm_up
        for step in steps[began if began < len(steps) else 0 :]:  # a penalty may hold scaled gradients that overflow
            if not finite_loss(step):
                yield Failure("loss", step.iteration, f"{step.loss}")
                break
        bad = next((step for step in steps if not step.weights_finite), None)
        if bad is not None:
            yield Failure("weights", bad.iteration)
        applied = next((s for s in steps if not s.skipped and _broken(s)), None)
        if applied is not None:
            yield Failure("gradients", applied.iteration)
        yield from _failure_of_skips(steps)


def _broken(step: StepRecord) -> bool:
    return step.grad_norm_at_step is not None and not math.isfinite(step.grad_norm_at_step)


def _failure_of_skips(steps: tuple[StepRecord, ...]) -> Iterator[Failure]:
    seen = skips(steps)
    if not seen.total or steps[0].scale is None:
        return
    low = seen.settled is not None and seen.settled < CALM_SCALE <= steps[0].scale
    if low or (seen.settled is None and seen.attempts > 8):
        yield Failure("scale", steps[0].iteration, f"{seen.settled}")
    if len(seen.others) >= 2:
        yield Failure("skips", seen.others[0].iteration, f"{len(seen.others)} of {seen.attempts}")


def _failures_of_modules(arm: Arm) -> Iterator[Failure]:
    for module in arm.modules:
        if module.first_bad_iteration is not None:
            yield Failure("forward", module.first_bad_iteration, module.path or module.kind)


def raised_alike(one: Arm, other: Arm | None) -> bool:
    """Whether two arms ended with the same exception."""
    if other is None or one.crash is None or other.crash is None:
        return False
    return (one.crash.kind, one.crash.message) == (other.crash.kind, other.crash.message)


def losses(arm: Arm | None, optimizer: int) -> list[float]:
    """The finite losses of one optimizer's steps on rank 0."""
    steps = arm.of(optimizer) if arm is not None else ()
    return [step.loss for step in steps if step.loss is not None and math.isfinite(step.loss)]


def learns_less(examination: Examination) -> tuple[float, float, float] | None:
    """(first loss, last here, last in FP32) of a training that falls behind its FP32 control for good."""
    arm, control = observed(examination), examination.arm("fp32")
    if arm is None or not sound(control):
        return None
    for optimizer in (o.optimizer for o in arm.optimizers if not o.rank):
        here, there = losses(arm, optimizer), losses(control, optimizer)
        count = min(len(here), len(there))
        quarter = count // 4
        if quarter < 4:
            continue
        first = min(statistics.median(course[: max(1, quarter // 4)]) for course in (here, there))
        last, exact = (course[count - quarter : count] for course in (here, there))
        if _falls_behind(first, last, exact):
            return first, statistics.median(last), statistics.median(exact)
    return None


def _falls_behind(first: float, last: Sequence[float], exact: Sequence[float]) -> bool:
    """Whether of two courses that begin at `first` one ends above the other, and that is no chance.

    Two losses drift apart by chance; that nearly all of the last ones of one lie above nearly all of the other, which
    fell, is none, where the one went a third of the way, or ends three times as high without having come near.
    """
    here, there = statistics.median(last), statistics.median(exact)
    tenth = len(last) // 10
    if not 0 <= there < 0.85 * first or sorted(last)[tenth] <= sorted(exact)[-1 - tenth]:
        return False
    way = (first - here) / (first - there)
    return way < 0.35 or (way < 0.85 and here > 3 * there)


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that were measured; None of none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def low_regions(arm: Arm, dtype: str | None = None) -> tuple[RegionRecord, ...]:
    """Autocast regions in 16 bits (in `dtype`) that were entered and on."""
    wanted = (dtype,) if dtype else LOW
    return tuple(region for region in arm.regions if region.enabled and region.entered and region.dtype in wanted)


def scalers_in_use(arm: Arm) -> tuple[ScalerRecord, ...]:
    """Enabled scalers that something was asked of."""
    asked = {(event.rank, event.scaler) for event in arm.events if event.kind in ("scale", "scaler_step", "unscale")}
    return tuple(scaler for scaler in arm.scalers if scaler.enabled and (scaler.rank, scaler.scaler) in asked)


def trains_half_weights(optimizer: OptimizerRecord, *dtypes: str) -> bool:
    """Whether most of what the optimizer trains is in 16 bits."""
    low = sum(count for dtype, count in optimizer.parameter_dtypes.items() if dtype in (dtypes or LOW))
    return low > 0 and 2 * low >= sum(optimizer.parameter_dtypes.values())


def low_dtype(optimizer: OptimizerRecord) -> str | None:
    """The 16-bit dtype of some of what the optimizer trains; None where it has none."""
    counts = {dtype: count for dtype, count in optimizer.parameter_dtypes.items() if dtype in LOW and count}
    return max(counts, key=lambda dtype: counts[dtype]) if counts else None


def computes_low(arm: Arm) -> bool:
    """Whether anything ran in 16 bits: a region, weights, or a module's output."""
    return (
        any(region.modules or region.low_ops for region in low_regions(arm))
        or any(trains_half_weights(optimizer) for optimizer in arm.optimizers)
        or any(dtype in LOW for module in arm.modules for dtype in (*module.output_dtypes, *module.parameter_dtypes))
        or bool(low_regions(arm))
    )


def optimizer_of(arm: Arm, number: int | None, rank: int = 0) -> OptimizerRecord | None:
    """The record of an optimizer."""
    return next((o for o in arm.optimizers if o.optimizer == number and o.rank == rank), None)


def site_of_conversion(arm: Arm, *dtypes: str) -> Location | None:
    """The user's line that made a module's parameters 16-bit; None where none did."""
    return next(
        (
            event.site
            for event in arm.events
            if event.kind == "converted" and event.data.get("dtype") in (dtypes or LOW) and event.data.get("parameters")
        ),
        None,
    )


def event_run(arm: Arm, rank: int = 0) -> tuple[Event, ...]:
    """One rank's protocol calls in order."""
    return tuple(sorted((event for event in arm.events if event.rank == rank), key=lambda event: event.index))


def text_of(site: Location) -> str:
    """The line of the script that stands there; empty where it cannot be read."""
    return "" if site.file is None or site.line is None else linecache.getline(site.file, site.line)


def script_lines(examination: Examination) -> list[str]:
    """The script's own lines; none where it cannot be read."""
    return linecache.getlines(examination.command[0]) if examination.command else []


def statement_at(site: Location, most: int = 12) -> str:
    """The text from that line on until its brackets are closed; empty where it cannot be read."""
    text, start = "", site.line or 0
    for number in range(start, start + most):
        line = text_of(Location(file=site.file, line=number))
        text += line
        if not line or sum(map(text.count, "([{")) <= sum(map(text.count, ")]}")):
            break
    return text
