"""16-bit weights do not move: the update is smaller than half the distance to the next number."""

from __future__ import annotations

import statistics

from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding

LOOKS = 3
SHARE = 0.25


class Stagnation(Rule):
    """Measured, not estimated: elements that had a gradient and are the same after the step."""

    code = "MP061"
    asked = Moment.LOOKED

    def look(self, window: Window) -> Finding | None:
        """Asked when weights have just been sampled, and only of 16-bit ones without masters."""
        last = window.last
        if last.unchanged is None or not last.lr:
            return None
        shares = [r.unchanged for r in window.detailed if r.unchanged is not None][-LOOKS:]
        if len(shares) < LOOKS or statistics.median(shares) < SHARE:
            return None
        return self.finding(
            f"{statistics.median(shares):.0%} of the 16-bit weights that have a gradient do not change in a step: "
            f"updates at a learning rate of {last.lr:g} round to nothing. The loss flattens where float32 weights "
            "would go on.",
            "Keep float32 weights (autocast casts them), or masters: Precision('bf16-master', ...), "
            "mixprec.StochasticRounding or mixprec.KahanSum.",
            seen("unchanged by a step", last.unchanged, last),
            seen("update to weight ratio", last.update_ratio, last),
            seen("learning rate", last.lr, last),
        )


RULE = Stagnation()
