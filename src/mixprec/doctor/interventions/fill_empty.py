"""Memory that the script asks for uninitialised (torch.empty) holds one number throughout.

Only where a line of the script asks itself: what libraries allocate they also write.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from mixprec._trace import is_user_file

__all__ = ["apply", "asking_frame"]

_OWN = str(Path(__file__).parents[2]) + os.sep


def apply(value: float) -> None:
    """`value`: what floating-point memory holds until it is written, NaN to see whether it ever is."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        _fill(owner, name, float(value))


def _fill(owner: Any, name: str, value: float) -> None:
    make = getattr(owner, name)

    @functools.wraps(make)
    def filled(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        if made.is_floating_point() and asking_frame() is not None:
            with torch.no_grad():
                made.fill_(value)
        return made

    setattr(owner, name, filled)


def asking_frame() -> FrameType | None:
    """The frame that called the wrapped function, past wrappers of ours, if it is the script's own; else None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame if frame is not None and is_user_file(frame.f_code.co_filename) else None
