"""A site is the line of the user's own code that led to a call; frames of libraries are passed over."""

from __future__ import annotations

import functools
import linecache
import sys
import sysconfig
from types import FrameType

from mixprec.records import Location

__all__ = ["is_user_file", "source_line", "user_frame", "user_site"]

_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {__file__.rsplit("/", 2)[0]}
)


@functools.lru_cache(maxsize=4096)
def is_user_file(file: str) -> bool:
    """Whether `file` is neither this package, the standard library, an installed package, nor made of text."""
    if file.startswith("<") and not file.startswith("<ipython-input"):
        return False
    return "site-packages" not in file and "dist-packages" not in file and not file.startswith(_LIBRARIES)


def user_frame(skip: int = 0) -> FrameType | None:
    """The innermost frame of the user's own code; None if there is none.

    **Cost**: one step per frame passed over, no traceback object.
    """
    frame: FrameType | None = sys._getframe(1 + skip)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_site(skip: int = 0) -> Location:
    """File and line of the innermost frame of the user's own code; an empty Location if there is none."""
    frame = user_frame(1 + skip)
    return Location() if frame is None else Location(file=frame.f_code.co_filename, line=frame.f_lineno)


def source_line(location: Location) -> str:
    """The text of that line without its indentation; empty if the file cannot be read."""
    if location.file is None or location.line is None:
        return ""
    return linecache.getline(location.file, location.line).strip()
