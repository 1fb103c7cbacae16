"""Weights are not finite: whatever follows is lost."""

from __future__ import annotations

from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding, Severity


class BadWeights(Rule):
    """Seen on the sample that is taken after a step."""

    code = "MP135"
    severity = Severity.ERROR
    asked = Moment.LOOKED

    def look(self, window: Window) -> Finding | None:
        """The record names them."""
        last = window.last
        if not last.bad_weights:
            return None
        return self.finding(
            f"After step {last.step} weights are not finite, {last.bad_weights[0]} among them. Every output is NaN "
            "from here on, and the step that wrote them may lie earlier.",
            "Stop, go back to the last checkpoint, and look at the steps before this one for a gradient that was "
            "applied although it was not finite.",
            *(seen("weight not finite", name, last) for name in last.bad_weights),
            module=last.bad_weights[0].rpartition(".")[0] or None,
        )


RULE = BadWeights()
