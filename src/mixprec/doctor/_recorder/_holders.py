"""By what names the user's own running functions can reach given modules: where a change of them can be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from mixprec._trace import is_user_file

__all__ = ["holders"]

MOST_HOLDERS = 4


def holders(parts: Sequence[nn.Module]) -> Iterator[dict[str, Any]]:
    """Variables of the user's running functions, outermost function first, through which `parts` can be reached."""
    frames = []
    frame: Any = sys._getframe()
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    found = 0
    for frame in reversed(frames):
        for name, paths in _reached(frame, parts):
            yield {
                "file": os.path.abspath(frame.f_code.co_filename),
                "function": frame.f_code.co_name,
                "first_line": frame.f_code.co_firstlineno,
                "line": frame.f_lineno,
                "name": name,
                "paths": paths,
                "torch": frame.f_globals.get("torch") is torch,
            }
            found += 1
            if found >= MOST_HOLDERS:
                return


def _reached(frame: Any, parts: Sequence[nn.Module]) -> Iterator[tuple[str, list[str]]]:
    """(variable or attribute of one, paths from there): variables first."""
    values = [(name, value) for name, value in list(frame.f_locals.items()) if name.isidentifier()]
    inner = [
        (f"{name}.{attribute}", value)
        for name, owner in values
        if not isinstance(owner, (nn.Module, type)) and type(owner).__module__ != "builtins"
        for attribute, value in list(getattr(owner, "__dict__", {}).items())
        if attribute.isidentifier() and not attribute.startswith("_")
    ]
    for name, value in (*values, *inner):
        if isinstance(value, nn.Module):
            paths = {id(part): path for path, part in value.named_modules()}
            if all(id(part) in paths for part in parts):
                yield name, [paths[id(part)] for part in parts]
