"""Gradients computed in float16 are so small that most of what is left of them is subnormal, or nothing is left."""

from __future__ import annotations

import math
import statistics

from mixprec.monitor._record import StepRecord
from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding

LOOKS = 3
SHARE = 0.4
"""Of the elements that are not zero: zeros alone may be ReLU's, or rows that were not looked up."""


class Underflow(Rule):
    """Subnormal numbers are the shore: where most of the rest is subnormal, much has drowned already."""

    code = "MP060"
    asked = Moment.LOOKED

    def look(self, window: Window) -> Finding | None:
        """Asked when gradients have just been sampled, in models that compute in float16."""
        last = window.last
        if last.format != "fp16" or last.zero is None or not last.applied:
            return None
        looks = [r for r in window.detailed if r.zero is not None and r.applied][-LOOKS:]
        if len(looks) < LOOKS or statistics.median(map(_low, looks)) < SHARE or _low(last) < SHARE:
            return None
        scale = "there is no loss scale" if last.scale is None else f"the loss scale is {last.scale:g}"
        worst = max(last.modules, key=lambda path: last.modules[path].weight_subnormal or 0.0, default=None)
        told = (
            f"All gradient elements are exactly 0, and the loss is {last.loss:g}; {scale}. They have become zero in "
            "float16, unless nothing that the loss depends on is trained."
            if last.zero >= 1.0
            else f"{_low(last):.0%} of the gradient elements that are not zero are below float16's smallest normal "
            f"number, so as many more have become zero; {scale}. The model learns from what is left."
        )
        return self.finding(
            told,
            "Use a loss scaler, start it higher (init_scale), or train in bfloat16.",
            seen("subnormal, of those not zero", _low(last), last),
            seen("zero, of all", last.zero, last),
            seen("loss scale", last.scale, last),
            module=worst,
        )


def _low(record: StepRecord) -> float:
    zero, subnormal = record.zero or 0.0, record.subnormal or 0.0
    if zero >= 1.0:
        return 1.0 if record.loss is not None and math.isfinite(record.loss) and record.loss != 0.0 else 0.0
    return subnormal / (1.0 - zero)


RULE = Underflow()
