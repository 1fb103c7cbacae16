"""What to change, and why: one file per cause, each a function over the report; found by listing this folder.

A file `mpNNN_name.py` defines `advise(report) -> Iterable[Advice]`. It speaks at warning level only where following it
pays on evidence of this run, and at information level where it is true and costs little.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable

from mixprec.audit._report import AuditReport
from mixprec.audit.advice._advice import Advice
from mixprec.records import Finding, Severity

__all__ = ["Advice", "advise"]

_ORDER = [Severity.ERROR, Severity.WARNING, Severity.INFO]


def advise(report: AuditReport) -> tuple[Finding, ...]:
    """The findings on `report`: the most severe first, and within a severity the largest gain first."""
    found = [advice for rule in _rules() for advice in rule(report)]
    ranked = sorted(found, key=lambda advice: (_ORDER.index(advice.finding.severity), -advice.gain))
    return tuple(advice.finding for advice in ranked)


@functools.cache
def _rules() -> tuple[Callable[[AuditReport], Iterable[Advice]], ...]:
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name.startswith("mp"))
    return tuple(importlib.import_module(f"{__name__}.{name}").advise for name in names)
