"""A step in another precision: every autocast region gets another dtype, or is switched off.

What a script casts by hand stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from mixprec.errors import UnknownNameError

__all__ = ["PRECISIONS", "precision_override"]

PRECISIONS = ("fp32", "bf16-mixed", "fp16-mixed")
_DTYPES = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}


@contextlib.contextmanager
def precision_override(name: str | None) -> Iterator[None]:
    """Inside, `torch.autocast` regions that are built compute in precision `name`; None leaves them alone."""
    if name is None:
        yield
        return
    if name not in PRECISIONS:
        raise UnknownNameError("precision", name, PRECISIONS)
    original = torch.amp.autocast_mode.autocast.__init__

    @functools.wraps(original)
    def build(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        original(self, device_type, _DTYPES.get(name, dtype), enabled and name in _DTYPES, cache_enabled)

    torch.amp.autocast_mode.autocast.__init__ = build  # type: ignore[method-assign] # put back below
    try:
        yield
    finally:
        torch.amp.autocast_mode.autocast.__init__ = original  # type: ignore[method-assign] # as it was
