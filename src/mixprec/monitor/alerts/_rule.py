"""A rule sees a window over the records and says what it found, or nothing."""

from __future__ import annotations

import enum
import functools
import importlib
import itertools
import pkgutil
from collections import deque
from collections.abc import Iterable

from mixprec.causes import cause_names
from mixprec.monitor._record import StepRecord
from mixprec.records import Evidence, Finding, Fix, Location, Severity

__all__ = ["DETAILED", "LENGTH", "Moment", "Rule", "Window", "all_rules", "seen"]

LENGTH = 256
"""Records that a window holds."""

DETAILED = 32
"""Records of steps that were looked at in detail, which reach further back."""


class Window:
    """The latest records: `last`, `steps` (oldest first), and those of steps that were looked at, `detailed`."""

    def __init__(self, records: Iterable[StepRecord] = ()) -> None:
        self.steps: deque[StepRecord] = deque(maxlen=LENGTH)
        self.detailed: deque[StepRecord] = deque(maxlen=DETAILED)
        for record in records:
            self.add(record)

    def add(self, record: StepRecord) -> None:
        """`record` is the last one now."""
        self.steps.append(record)
        if record.looked:
            self.detailed.append(record)

    @property
    def last(self) -> StepRecord:
        """The latest record."""
        return self.steps[-1]

    def tail(self, count: int) -> tuple[StepRecord, ...]:
        """At most `count` latest records, oldest first."""
        return tuple(itertools.islice(self.steps, max(0, len(self.steps) - count), None))


class Moment(enum.Enum):
    """After which steps a rule is asked."""

    EVERY_STEP = "every step"
    SKIPPED = "a step that was skipped"
    LOOKED = "a step that was looked at in detail"


class Rule:
    """One kind of trouble. `code` names its cause (`mixprec explain CODE`)."""

    code: str
    severity = Severity.WARNING
    asked = Moment.EVERY_STEP

    def look(self, window: Window) -> Finding | None:
        """What the latest record makes worth saying; None: nothing."""
        raise NotImplementedError

    def finding(
        self,
        message: str,
        fix: str,
        *evidence: Evidence,
        module: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """The finding of this rule."""
        return Finding(
            self.code,
            cause_names()[self.code],
            severity or self.severity,
            message,
            Location(module=module),
            evidence,
            Fix(fix),
        )


def seen(what: str, value: float | int | str | None, record: StepRecord, unit: str = "") -> Evidence:
    """A fact of one record."""
    return Evidence(what, value, unit, step=record.step)


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of codes."""
    import mixprec.monitor.alerts as package

    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("mp"))
    return tuple(importlib.import_module(f"{package.__name__}.{name}").RULE for name in names)
