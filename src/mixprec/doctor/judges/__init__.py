"""Judges: one file per cause or tight family, each a pure function from an examination to a verdict or None.

A file `name.py` here defines `judge(examination)`; files are found by scanning and nothing is registered by hand.
A judge looks at what it needs and at nothing else; which verdict counts is decided when all have spoken.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable

from mixprec.doctor._arm import Examination
from mixprec.records import Verdict

__all__ = ["Judge", "all_judges"]

Judge = Callable[[Examination], "Verdict | None"]


@functools.cache
def all_judges() -> tuple[tuple[str, Judge], ...]:
    """(name, judge) of every file in this folder, in the order of names."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    return tuple((name, importlib.import_module(f"{__name__}.{name}").judge) for name in names)
