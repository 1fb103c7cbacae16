"""A file that never speaks of precision holds nothing for any rule; finding that out is one search through its text."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

__all__ = ["AMP_WORDS", "mentions"]

AMP_WORDS: tuple[str, ...] = (
    "amp",
    "autocast",
    "bf16",
    "bfloat16",
    "float16",
    "fp16",
    "GradScaler",
    "half",
    "mixed_precision",
    "mixprec",
    "scaler",
)
"""What a rule listens for unless it says otherwise. Each is searched as it is written, anywhere in the text."""


@functools.lru_cache(maxsize=256)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))


def mentions(source: str, words: Iterable[str]) -> bool:
    """Whether any of `words` occurs in `source`. **Cost**: one pass over the text, no parsing."""
    return _pattern(tuple(sorted(set(words)))).search(source) is not None
