"""The rows of the table: ways to train, by what they store and in which dtype."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["BLOCK", "SMALL_STATE", "Precision", "each_precision"]

BLOCK = 256
"""Elements of 8-bit state that share one float32 scale, in bitsandbytes and in torchao."""

SMALL_STATE = 4096
"""Weights with fewer elements keep 32-bit state in the 8-bit optimizers of bitsandbytes and torchao.

Source: https://github.com/bitsandbytes-foundation/bitsandbytes/blob/main/bitsandbytes/optim/optimizer.py
"""


@dataclass(frozen=True)
class Precision:
    """A way to train. `low` is the dtype of the regions, "" for none; `weights` the dtype that weights are stored in.

    `masters` keeps a float32 copy of each weight, `extra` as many bytes of compensation per weight; `state` is the
    number of bytes of one element of optimizer state. `narrowing` are the bytes per element that exist while one weight
    is rounded, 0 where the optimizer steps the weights themselves.
    """

    name: str
    low: str = ""
    weights: str = "float32"
    masters: bool = False
    extra: int = 0
    state: float = 4.0
    narrowing: int = 0


def each_precision(low: tuple[str, ...] = ("float16", "bfloat16")) -> Iterator[Precision]:
    """The rows of the table."""
    yield Precision("fp32")
    for dtype, short in (("float16", "fp16"), ("bfloat16", "bf16")):
        if dtype in low:
            yield Precision(f"{short}-mixed", dtype)
            yield Precision(f"{short}-master", dtype, dtype, masters=True)
    yield Precision("bf16 + Kahan summation", "bfloat16", "bfloat16", extra=2, narrowing=10)
    yield Precision("bf16 + stochastic rounding", "bfloat16", "bfloat16", narrowing=15)
    yield Precision("bf16-mixed + 8-bit optimizer", "bfloat16", state=1.0 + 4 / BLOCK)
