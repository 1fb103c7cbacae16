"""A script that tests its loss and leaves a step out by hand calls neither backward nor step: its test is heard.

`torch.isfinite`, `isnan` and `isinf` (as functions and methods) and those of `math` are replaced by ones that note what
a single number was tested, and put back by `remove`. What they return is untouched.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Checks"]

_NAMES = ("isfinite", "isnan", "isinf")
_OWNERS: tuple[Any, ...] = (torch, Tensor, math)


class Checks:
    """Tells `heard` each single number (a tensor of one element, or a float) whose finiteness is tested.

    **Cost** one Python call more per test; no kernel, no sync.
    """

    def __init__(self, heard: Callable[[Tensor | float], None]) -> None:
        self._undo: list[Callable[[], None]] = []
        for owner in _OWNERS:
            for name in _NAMES:
                self._replace(owner, name, heard)

    def remove(self) -> None:
        """Puts the functions back."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, heard: Callable[[Tensor | float], None]) -> None:
        original = getattr(owner, name)
        own = name in vars(owner)

        @functools.wraps(original)
        def test(*args: Any, **kwargs: Any) -> Any:
            first = args[0] if args else None
            if isinstance(first, float) or (isinstance(first, Tensor) and first.numel() == 1):
                heard(first.detach() if isinstance(first, Tensor) else first)
            return original(*args, **kwargs)

        setattr(owner, name, test)
        self._undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))
