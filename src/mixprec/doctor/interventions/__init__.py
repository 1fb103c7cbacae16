"""An intervention changes one thing in a script that knows nothing of it; interventions compose.

One file each, found by listing this folder and loaded only where it is applied, in the script's process when torch
has just been imported. A file defines `apply(value)`; the first line of its docstring says what it changes.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mixprec.errors import UnknownNameError

__all__ = ["apply", "check", "described", "names"]


def names() -> tuple[str, ...]:
    """Every intervention that there is; nothing is imported."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")))


@functools.cache
def described(name: str) -> str:
    """What `name` changes, in one sentence; nothing is imported. Raises: UnknownNameError."""
    check(name)
    text = Path(__path__[0], f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def check(name: str) -> None:
    """Raises: UnknownNameError with suggestions."""
    if name not in names():
        raise UnknownNameError("intervention", name, names())


def apply(interventions: Mapping[str, Any]) -> None:
    """Puts `interventions`, name to value, in place in this process for good. In the order of their names."""
    for name in sorted(interventions):
        check(name)
        importlib.import_module(f"{__name__}.{name}").apply(interventions[name])
