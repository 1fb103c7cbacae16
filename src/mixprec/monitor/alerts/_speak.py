"""What a rule found is said once; if it goes on, again after a silence that is four times as long each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mixprec.monitor._record import StepRecord
from mixprec.monitor.alerts._rule import Moment, Rule, Window, all_rules
from mixprec.records import Finding

__all__ = ["Alerts"]

SILENCE = 1000
"""Steps of silence after the first time."""


class Alerts:
    """Asks the rules after every record."""

    def __init__(
        self, rules: Iterable[Rule] | None = None, failed: Callable[[str, Exception], None] = lambda *told: None
    ) -> None:
        self._failed = failed
        self.window = Window()
        asked = tuple(all_rules() if rules is None else rules)
        self._by_moment = {moment: [rule for rule in asked if rule.asked is moment] for moment in Moment}
        self._silent: dict[str, tuple[int, int]] = {}
        self._optimizers: set[str] = set()

    def look(self, record: StepRecord) -> list[Finding]:
        """What is to be said now. **Cost**: a few microseconds on the host while nothing is wrong."""
        own = set(record.optimizers or ("optimizer0",))
        if self._optimizers and not own & self._optimizers:
            self.window = Window()  # another training has begun in the same process
        self._optimizers |= own
        self.window.add(record)
        found = []
        for rule in self._asked(record):
            until, silence = self._silent.get(rule.code, (0, SILENCE))
            if record.step < until:
                continue
            try:
                finding = rule.look(self.window)
            except Exception as error:  # the others go on
                self._failed(f"rule {rule.code}", error)
                continue
            if finding is not None:
                self._silent[rule.code] = (record.step + silence, silence * 4)
                found.append(finding)
        return found

    def _asked(self, record: StepRecord) -> list[Rule]:
        """In the order of codes within each moment."""
        rules = list(self._by_moment[Moment.EVERY_STEP])
        if record.skipped:
            rules += self._by_moment[Moment.SKIPPED]
        if record.looked:
            rules += self._by_moment[Moment.LOOKED]
        return rules
