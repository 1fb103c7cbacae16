"""What a rule found is said once; if it goes on, again after a silence that is four times as long each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mixprec.monitor._record import StepRecord
from mixprec.monitor.alerts._rule import Moment, Rule, Window, all_rules
from mixprec.records import Finding

__all__ = ["Alerts"]

SILENCE = 1000
"""Steps of silence after the first time."""


_NEVER = (0, SILENCE)
"""Of a rule that has said nothing: silent until step 0, then for so long."""


def _concerned(rule: Rule, skipped: bool, looked: bool) -> bool:
    """Whether `rule` is asked after such a step."""
    return {Moment.EVERY_STEP: True, Moment.SKIPPED: skipped, Moment.LOOKED: looked}[rule.asked]


class Alerts:
    """Asks the rules after every record."""

    def __init__(
        self, rules: Iterable[Rule] | None = None, failed: Callable[[str, Exception], None] = lambda *told: None
    ) -> None:
        self._failed = failed
        self.window = Window()
        asked = tuple(all_rules() if rules is None else rules)
        self._asked = {
            (skipped, looked): tuple(rule for rule in asked if _concerned(rule, skipped, looked))
            for skipped in (False, True)
            for looked in (False, True)
        }
        self._silent: dict[str, tuple[int, int]] = {}
        self._optimizers: tuple[str, ...] = ()
        self._known = {"optimizer0"}

    def look(self, record: StepRecord) -> list[Finding]:
        """What is to be said now. **Cost**: a few microseconds on the host while nothing is wrong."""
        if record.optimizers != self._optimizers:
            self._another(record)
        self.window.add(record)
        found = []
        for rule in self._asked[record.skipped, record.looked]:
            if self._silent and record.step < self._silent.get(rule.code, _NEVER)[0]:
                continue
            try:
                finding = rule.look(self.window)
            except Exception as error:  # the others go on
                self._failed(f"rule {rule.code}", error)
                continue
            if finding is not None:
                silence = self._silent.get(rule.code, _NEVER)[1]
                self._silent[rule.code] = (record.step + silence, silence * 4)
                found.append(finding)
        return found

    def _another(self, record: StepRecord) -> None:
        """Other optimizers stepped than before; if they are all new another training has begun in this process."""
        own = set(record.optimizers or ("optimizer0",))
        if not own & self._known:
            self.window = Window()
        self._known |= own
        self._optimizers = record.optimizers
