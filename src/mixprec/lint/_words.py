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
"""What a rule listens for unless it says otherwise."""

SHORT = 4
"""Letters; a word in lower case up to this length occurs inside others that say nothing of precision."""


def mentions(source: str, words: Iterable[str]) -> bool:
    """Whether any of `words` occurs in `source`. **Cost**: one search per word at most, no parsing.

    A short word must stand by itself, as `amp` does in `use_amp` and not in `example`; a longer one may be a part.
    """
    return any(word in source and (not _is_short(word) or _alone(word).search(source)) for word in words)


def _is_short(word: str) -> bool:
    return len(word) <= SHORT and word.islower()


@functools.cache
def _alone(word: str) -> re.Pattern[str]:
    """The lookbehind stands last: a pattern that begins with plain letters is searched ten times as fast."""
    return re.compile(rf"{re.escape(word)}(?![a-z])(?<![A-Za-z]{re.escape(word)})")
