"""Steps are skipped more often than the growth of the scale explains."""

from __future__ import annotations

import itertools

from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding

LEAST = 4
SHARE = 0.02
SPREAD = 3


class UnexplainedSkips(Rule):
    """Spread over the run, unlike a collapse: some batches have gradients far larger than the others."""

    code = "MP029"
    asked = Moment.SKIPPED

    def look(self, window: Window) -> Finding | None:
        """Only a skip can tell; a growth pays for one, and those that it paid for are benign."""
        if window.last.benign is not False:
            return None
        skips = [record for record in window.steps if record.benign is False]
        episodes = sum(1 for before, now in itertools.pairwise(skips) if now.step > before.step + 1) + 1
        if len(skips) < max(LEAST, SHARE * len(window.steps)) or episodes < SPREAD:
            return None
        return self.finding(
            f"{len(skips)} of the last {len(window.steps)} steps were skipped without the scale having grown before "
            "them. Single batches have gradients that are much larger than the others': their steps are lost, and the "
            "scale stays lower than the rest would need.",
            "Look at the batches of these steps (long sequences, outliers), clip gradients, or lower the learning "
            "rate.",
            *(seen("skipped at loss scale", record.scale, record) for record in skips[-4:]),
        )


RULE = UnexplainedSkips()
