"""The loss was not finite, and the run goes on: a log that averages or filters does not show it.

While the first scale is searched for, a few such losses may come of the scale itself: a penalty on gradients that carry
it is infinite until it has come down.
"""

from __future__ import annotations

import math

from mixprec.monitor.alerts._rule import Rule, Window, seen
from mixprec.records import Finding, Severity

SEARCHING = 4
"""Skipped steps at the start of a run whose losses are bad, from which on the scale is no explanation."""


class HiddenNaN(Rule):
    """The raw loss, as backward got it."""

    code = "MP133"

    def look(self, window: Window) -> Finding | None:
        """One number tells."""
        last = window.last
        if last.loss is None or math.isfinite(last.loss) or _searching(window):
            return None
        fate = "and was applied to the weights" if last.applied else "and its step was skipped"
        return self.finding(
            f"The loss of step {last.step} was {last.loss:g} {fate}. Logs that average, or leave out what is not "
            "finite (transformers' logging_nan_inf_filter does by default), do not show that.",
            "Do not trust the logged loss from here on; replay the step (`mixprec replay`) to see which op was first.",
            seen("loss", last.loss, last),
            seen("loss scale", last.scale, last),
            severity=Severity.ERROR if last.applied else Severity.WARNING,
        )


def _searching(window: Window) -> bool:
    """Whether every step so far was skipped, and they are few."""
    return len(window.steps) < SEARCHING and all(record.skipped for record in window.steps)


RULE = HiddenNaN()
