"""Given batches, counted from 0 over the whole run, are loaded and not handed out.

Batches that the script makes without a DataLoader are not controlled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import dataloader

__all__ = ["apply"]


def apply(value: Sequence[int]) -> None:
    """`value`: the numbers of the batches."""
    original: Any = dataloader._BaseDataLoaderIter.__next__
    left_out = frozenset(value)
    count = -1

    def next_kept(iterator: Any) -> Any:
        nonlocal count
        while True:
            batch = original(iterator)
            count += 1
            if count not in left_out:
                return batch

    dataloader._BaseDataLoaderIter.__next__ = next_kept  # type: ignore[assignment,method-assign] # the intervention itself
