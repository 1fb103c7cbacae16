"""The gradient norm has jumped and stays there: the training is about to diverge, in any precision."""

from __future__ import annotations

import math
import statistics

from mixprec.monitor.alerts._rule import Rule, Window, seen
from mixprec.records import Finding

RECENT = 5
BEFORE = 40
TIMES = 10.0


class GradNormSurge(Rule):
    """Every one of the last norms is ten times the median of those before, and the loss has risen with them.

    Norms rise as well where a model that had stalled begins to learn; then the loss falls.
    """

    code = "MP039"

    def look(self, window: Window) -> Finding | None:
        """The last norm is compared with the one 20 steps ago before anything is sorted."""
        steps = window.steps
        if len(steps) < BEFORE + RECENT or not _above(window.last.grad_norm, steps[-20].grad_norm):
            return None
        known = [r for r in steps if r.applied and _finite(r.grad_norm) and _finite(r.loss)]
        if len(known) < BEFORE + RECENT:
            return None
        norms = [r.grad_norm or 0.0 for r in known]
        losses = [r.loss or 0.0 for r in known]
        if statistics.median(losses[-RECENT:]) <= statistics.median(losses[-RECENT - 20 : -RECENT]):
            return None
        usual = statistics.median(norms[:-RECENT])
        if usual <= 0.0 or min(norms[-RECENT:]) < TIMES * usual:
            return None
        last = window.last
        return self.finding(
            f"The last {RECENT} gradient norms are all more than {TIMES:g} times the usual {usual:.3g}. This is rarely "
            "precision: the training itself is becoming unstable.",
            "Lower the learning rate, lengthen the warm-up, or clip gradients to about the usual norm.",
            seen("gradient norm", last.grad_norm, last),
            seen("median of those before", usual, last),
            seen("learning rate", last.lr, last),
        )


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _above(now: float | None, then: float | None) -> bool:
    return now is not None and then is not None and now > 2.0 * then


RULE = GradNormSurge()
