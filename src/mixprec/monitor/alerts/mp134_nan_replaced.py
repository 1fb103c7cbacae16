"""A module returned NaN and the loss is finite all the same: something replaces or selects it away."""

from __future__ import annotations

import math

from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding


class NaNReplaced(Rule):
    """`where`, `nan_to_num` and masks hide a NaN in forward; its gradient comes back all the same."""

    code = "MP134"
    asked = Moment.LOOKED

    def look(self, window: Window) -> Finding | None:
        """Asked when modules have just been looked at."""
        last = window.last
        if not last.looked or last.loss is None or not math.isfinite(last.loss):
            return None
        path = next((p for p, m in last.modules.items() if m.high is not None and math.isnan(m.high)), None)
        if path is None:
            return None
        return self.finding(
            f"{path} returned NaN, and yet the loss is finite: something after it (nan_to_num, where, a mask) hides "
            "the NaN. Its gradient is NaN or missing.",
            "Avoid the NaN where it arises (a row that is masked completely, a mean over nothing) instead of replacing "
            "it afterwards.",
            seen("loss", last.loss, last),
            seen("largest output", last.modules[path].high, last),
            module=path,
        )


RULE = NaNReplaced()
