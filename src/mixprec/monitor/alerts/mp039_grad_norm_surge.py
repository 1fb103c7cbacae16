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
    """Every one of the last norms is ten times the median of those before."""

    code = "MP039"

    def look(self, window: Window) -> Finding | None:
        """The last norm is compared with the one 20 steps ago before anything is sorted."""
        steps = window.steps
        if len(steps) < BEFORE + RECENT or not _above(window.last.grad_norm, steps[-20].grad_norm):
            return None
        norms = [r.grad_norm for r in steps if r.grad_norm is not None and math.isfinite(r.grad_norm) and r.applied]
        if len(norms) < BEFORE + RECENT:
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


def _above(now: float | None, then: float | None) -> bool:
    return now is not None and then is not None and now > 2.0 * then


RULE = GradNormSurge()
