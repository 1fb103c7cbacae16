"""A closed step and its numbers become a record; what spans steps (format, paid skips) is carried along."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from mixprec._loss_scale import Event
from mixprec.monitor._assemble_modules import module_records, shares
from mixprec.monitor._headroom_bits import extreme
from mixprec.monitor._record import StepRecord
from mixprec.monitor._skips import START, judge
from mixprec.monitor._steps import ClosedStep
from mixprec.records import StepReason

__all__ = ["Assembler"]

Found = Mapping[Hashable, Sequence[float]]
NAMED = 5
"""How many names a list of what is not finite holds."""

NARROWEST_FIRST = ("fp16", "bf16", "fp32", "fp64")


class Assembler:
    """Makes the records of one run, in order."""

    def __init__(self) -> None:
        self._budget = START
        self._formats: set[str] = set()
        self._narrowest: str | None = None

    def record(self, step: ClosedStep, found: Found) -> StepRecord:
        """The record of the next step."""
        scale, scale_after = _first(found, "scale"), _first(found, "scale_after")
        skipped = any(flag > 0 for flag in found.get("found_inf", ()))
        event = _event(scale, scale_after, skipped) if step.scaling else None
        loss = _loss(found, scale)
        self._budget, verdict = judge(self._budget, skipped, event, scale, loss)
        norm, clipped = _norms(step, found, scale)
        lrs = _lrs(step, found)
        format_name = self._format(step)
        known: dict[str, Any] = {
            "step": step.index,
            "time": step.time,
            "seconds": step.seconds,
            "loss": loss,
            "grad_norm": norm,
            "clipped_norm": clipped,
            "lr": lrs[0] if lrs else None,
            "logit": _logit(step, found),
            "format": format_name,
        }
        if step.scaling:
            known |= {"scale": scale, "scale_after": scale_after, "event": event}
        if verdict is not None:
            known |= {"reason": StepReason.FOUND_INF.value, "benign": verdict.benign, "why": verdict.why}
        if step.clips:
            known["clipped_scaled"] = any(scaled for _, scaled in step.clips)
        if len(lrs) > 1:
            known["lrs"] = lrs
        if step.attempted != FIRST_ALONE:
            known["optimizers"] = tuple(step.attempted)
        if step.looked:
            known |= _looked(step, found, format_name or "fp32", scale)
            known |= {} if skipped else _updates(found)
        if skipped or step.looked:
            known["bad_gradients"] = _bad_gradients(step, found)
        return StepRecord.of(known)

    def _format(self, step: ClosedStep) -> str | None:
        """The narrowest that was seen so far."""
        if step.looked:
            self._formats.update(step.traces.dtypes.values(), step.traces.grad_dtypes.values())
            self._narrowest = next((name for name in NARROWEST_FIRST if name in self._formats), None)
        return self._narrowest


FIRST_ALONE = ["optimizer0"]


def _looked(step: ClosedStep, found: Found, format_name: str, scale: float | None) -> dict[str, Any]:
    """What is known only of steps that were looked at."""
    return {
        "looked": True,
        "memory": step.memory,
        "modules": module_records(step, found, format_name, scale),
        "bad_weights": _bad(step.weights, found.get("weights_bad", ())),
        "bad_buffers": _bad_buffers(step, found),
        **shares(step, found),
    }


def _first(found: Found, key: Hashable) -> float | None:
    values = found.get(key)
    return values[0] if values else None


def _event(scale: float | None, after: float | None, skipped: bool) -> str:
    if scale is None or after is None or scale == after:
        return str((Event.TOLERATE if skipped else Event.HOLD).value)
    if after > scale:
        return str(Event.GROW.value)
    return str((Event.BACK_OFF if skipped else Event.LOWER).value)


def _loss(found: Found, scale: float | None) -> float | None:
    plain, scaled = found.get("loss", ()), found.get("scaled_loss", ())
    return sum(plain) + sum(scaled) / (scale or 1.0) if plain or scaled else None


def _length(parts: Iterable[float]) -> float:
    return math.hypot(*parts)


def _norms(step: ClosedStep, found: Found, scale: float | None) -> tuple[float | None, float | None]:
    """The norm before clipping, and after it where gradients were clipped."""
    if "report_norm" in found:
        before = _length(found["report_norm"])
        return before, before * min(found["report_coefficient"])
    if "clip_norm" in found:
        pairs = [
            (norm / divisor, min(norm, limit) / divisor)
            for norm, (limit, scaled) in zip(found["clip_norm"], step.clips, strict=True)
            for divisor in [scale if scaled and scale else 1.0]
        ]
        return _length(before for before, _ in pairs), _length(after for _, after in pairs)
    parts: list[float] = []
    for read in step.gradients:
        divisor = scale if read.scaled and scale else 1.0
        parts += [value / divisor for value in found.get(("norms", read.key), ())]
    return (_length(parts) if parts else None), None


def _lrs(step: ClosedStep, found: Found) -> tuple[float, ...]:
    rates = (rate if rate is not None else _first(found, ("lr", i)) for i, rate in enumerate(step.lrs))
    return tuple(rate for rate in rates if rate is not None)


def _logit(step: ClosedStep, found: Found) -> float | None:
    ends = [end for path in step.traces.roots for side in ("low", "high") for end in found[(side, path)]]
    return abs(extreme(ends)) if ends else None


def _bad_gradients(step: ClosedStep, found: Found) -> tuple[str, ...]:
    names = []
    for read in step.gradients:
        norms = found.get(("norms", read.key), ())
        names += [name for name, norm in zip(read.normed, norms, strict=True) if not math.isfinite(norm)]
    return tuple(names[:NAMED])


def _bad(reads: Iterable[Any], counts: Sequence[float]) -> tuple[str, ...]:
    names = [name for read in reads for name in read.names]
    return tuple(name for name, count in zip(names, counts, strict=True) if count)[:NAMED]


def _bad_buffers(step: ClosedStep, found: Found) -> tuple[str, ...]:
    ends = found.get("buffers", ())
    pairs = zip(step.buffers, zip(ends[::2], ends[1::2], strict=True), strict=True)
    return tuple(name for name, (low, high) in pairs if not math.isfinite(low + high))[:NAMED]


def _updates(found: Found) -> dict[str, float]:
    """How much an applied step changed, on a sample."""
    facts = {}
    changes, weights = found.get("update_squares", ())[::2], found.get("update_squares", ())[1::2]
    if sum(weights) > 0:
        facts["update_ratio"] = math.sqrt(sum(changes) / sum(weights))
    half, wide = found.get("unchanged_half", ()), found.get("unchanged_wide", ())
    if sum(half[1::2]):
        facts["unchanged"] = sum(half[::2]) / sum(half[1::2])
    if sum(half[1::2]) + sum(wide[1::2]):
        facts["unchanged_all"] = (sum(half[::2]) + sum(wide[::2])) / (sum(half[1::2]) + sum(wide[1::2]))
    return facts
