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


@functools.lru_cache(maxsize=256)
def _pattern(words: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(_spelling, sorted(words, key=lambda word: (-len(word), word)))))


def _spelling(word: str) -> str:
    is_short = len(word) <= SHORT and word.islower()
    return rf"(?<![A-Za-z]){re.escape(word)}(?![a-z])" if is_short else re.escape(word)


def mentions(source: str, words: Iterable[str]) -> bool:
    """Whether any of `words` occurs in `source`. **Cost**: one pass over the text, no parsing.

    A short word must stand by itself, as `amp` does in `use_amp` and not in `example`; a longer one may be a part.
    """
    return _pattern(frozenset(words)).search(source) is not None
