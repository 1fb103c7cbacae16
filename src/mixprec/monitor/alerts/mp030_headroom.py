"""A float16 activation comes closer to 65504 look after look, or has passed it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mixprec.monitor._record import ModuleRecord, StepRecord
from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding, Severity

LOOKS = 6
NEAR_BITS = 2.0
"""Above this nothing is said, however fast it falls."""

LOST_BITS = 1.5
"""Headroom that must have been lost within the window."""


class HeadroomShrinking(Rule):
    """Judged on what modules return in float16; the scaled gradients' headroom is the loss scale's own business."""

    code = "MP030"
    asked = Moment.LOOKED

    def look(self, window: Window) -> Finding | None:
        """Asked when modules have just been looked at."""
        last = window.last
        if not last.looked or last.format != "fp16" or last.bad_weights:
            return None
        overflowed = _innermost([path for path, module in last.modules.items() if _overflowed(module)])
        if overflowed is not None:
            return self._passed(overflowed, last)
        closest = sorted(
            (module.headroom, path)
            for path, module in last.modules.items()
            if module.dtype == "fp16" and module.headroom is not None and module.headroom < NEAR_BITS
        )
        for _, path in closest:
            looks = _history(window, path)
            if len(looks) >= LOOKS and _shrinking([bits for _, bits in looks]):
                return self._near(path, looks)
        return None

    def _passed(self, path: str, last: StepRecord) -> Finding:
        module = last.modules[path]
        return self.finding(
            f"{path} returned float16 values that are not finite (largest {module.high:g}). Whatever the loss scale "
            "is, such a step is lost.",
            "Run this module in float32 (torch.autocast(enabled=False) around it, or Policy.torch().with_module), or "
            "train in bfloat16.",
            seen("largest output", module.high, last),
            module=path,
            severity=Severity.ERROR,
        )

    def _near(self, path: str, looks: Sequence[tuple[StepRecord, float]]) -> Finding:
        (first, before), (last, now) = looks[0], looks[-1]
        return self.finding(
            f"The largest float16 output of {path} is {now:.1f} bits below 65504, from {before:.1f} bits at step "
            f"{first.step}, and still growing. When it arrives, every step is lost.",
            "Find out why it grows (learning rate, missing normalisation or weight decay), run this module in float32, "
            "or train in bfloat16.",
            seen("headroom", before, first, "bits"),
            seen("headroom", now, last, "bits"),
            module=path,
        )


def _innermost(paths: Sequence[str]) -> str | None:
    """The first that contains no other of them."""
    for path in paths:
        inside = "" if path == "(model)" else f"{path}."
        if not any(other != path and other.startswith(inside) for other in paths):
            return path
    return None


def _overflowed(module: ModuleRecord) -> bool:
    """Plus infinity or NaN; minus infinity alone is a mask."""
    return module.dtype == "fp16" and module.high is not None and not module.high < math.inf


def _history(window: Window, path: str) -> list[tuple[StepRecord, float]]:
    found = []
    for record in window.detailed:
        module = record.modules.get(path)
        if module is not None and module.headroom is not None and math.isfinite(module.headroom):
            found.append((record, module.headroom))
    return found


def _shrinking(bits: Sequence[float]) -> bool:
    """Lost at least `LOST_BITS` over all, and the later half lies below the earlier, still falling at its end."""
    half = len(bits) // 2
    earlier, later = sum(bits[:half]) / half, sum(bits[half:]) / (len(bits) - half)
    return bits[0] - bits[-1] >= LOST_BITS and later < earlier and bits[-1] <= min(bits[-3:])


RULE = HeadroomShrinking()
