"""The loss scale falls step after step, and nothing explains it."""

from __future__ import annotations

import math

from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding, Severity

IN_A_ROW = 4


class ScaleFalling(Rule):
    """Skips in a row that neither a warm-up nor a growth of the scale accounts for."""

    code = "MP012"
    severity = Severity.ERROR
    asked = Moment.SKIPPED

    def look(self, window: Window) -> Finding | None:
        """Only skipped steps can tell."""
        if window.last.benign is not False:
            return None
        tail = window.tail(IN_A_ROW)
        if len(tail) < IN_A_ROW or any(record.benign is not False for record in tail):
            return None
        first, last = tail[0], tail[-1]
        broken = sum(1 for record in tail if record.loss is not None and not math.isfinite(record.loss))
        where = (
            f"and the loss was not finite in {broken} of them: the forward pass overflows or divides by zero, whatever "
            "the loss scale is. The scaler is not the cause, and waiting does not help."
            if broken
            else "although the loss is finite: backward overflows, or divides by zero, at any scale."
        )
        return self.finding(
            f"The last {IN_A_ROW} steps were all skipped, {where}",
            "Replay one of these steps (`mixprec replay`, or `mixprec doctor SCRIPT`) to see the first op whose output "
            "is not finite, and run that part in float32 or bfloat16.",
            seen("loss scale", first.scale, first),
            seen("loss scale", last.scale_after, last),
            seen("loss", last.loss, last),
            *(seen("gradient not finite", name, last) for name in last.bad_gradients[:2]),
        )


RULE = ScaleFalling()
