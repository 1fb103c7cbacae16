"""One op as it would run, for the bound: what it computes in and what it moves."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Work"]


@dataclass(frozen=True)
class Work:
    """The dtype that an op computes in, its FLOPs, and the bytes that it reads and writes."""

    flops: int
    dtype: str
    bytes: int
    launches: int = 1
