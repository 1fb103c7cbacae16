"""A buffer, such as a running mean, is not finite any more; skipping the step did not undo that."""

from __future__ import annotations

from mixprec.monitor.alerts._rule import Moment, Rule, Window, seen
from mixprec.records import Finding, Severity


class BadBuffers(Rule):
    """Buffers are written in forward, before anybody knows that the step will be skipped."""

    code = "MP038"
    severity = Severity.ERROR
    asked = Moment.LOOKED

    def look(self, window: Window) -> Finding | None:
        """The record names them."""
        last = window.last
        if not last.bad_buffers:
            return None
        return self.finding(
            f"{last.bad_buffers[0]} holds values that are not finite. Training may go on as if nothing were, since it "
            "normalises by the batch; evaluation will return NaN.",
            "Restore the buffer from a checkpoint, and keep the forward pass before it finite: a skipped step does not "
            "undo what forward wrote.",
            *(seen("buffer not finite", name, last) for name in last.bad_buffers),
            module=last.bad_buffers[0].rpartition(".")[0] or None,
        )


RULE = BadBuffers()
