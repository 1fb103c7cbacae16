"""Every `mpNNN_*.py` beside this file is a cause; finding them is listing the folder."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from mixprec.causes._cause import Cause
from mixprec.errors import UnknownNameError


@functools.cache
def all_causes() -> tuple[Cause, ...]:
    """Every cause, in the order of codes. Imports one small file per cause, once."""
    import mixprec.causes as package

    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("mp"))
    return tuple(importlib.import_module(f"{package.__name__}.{name}").CAUSE for name in names)


@functools.cache
def cause_names() -> dict[str, str]:
    """Code to name of every cause, in the order of codes, from the names of the files; imports none of them."""
    import mixprec.causes as package

    files = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("mp"))
    return {file[:5].upper(): file[6:].replace("_", "-") for file in files}


def find_cause(code_or_name: str) -> Cause:
    """The cause with this code (`MP002`, `mp2`, `R02`) or name (`clip-before-unscale`).

    Raises:
        UnknownNameError: no such cause; carries the closest names.
    """
    wanted = code_or_name.strip().lower()
    digits = wanted[2:] if wanted.startswith("mp") else wanted[1:] if wanted.startswith("r") else ""
    code = f"mp{int(digits):03d}" if digits.isdigit() else wanted
    for cause in all_causes():
        if code == cause.code.lower() or wanted == cause.name:
            return cause
    known = [cause.code for cause in all_causes()] + [cause.name for cause in all_causes()]
    raise UnknownNameError("cause", code_or_name, known, "`mixprec explain` lists them all.")
