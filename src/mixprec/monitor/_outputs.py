"""What a module returns is searched for the tensors that can overflow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from mixprec._trace import tensors_in

__all__ = ["DTYPES", "floating"]

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}
"""Formats whose headroom is worth knowing, by dtype."""

MOST = 8


def floating(output: Any) -> Iterable[Tensor]:
    """At most 8 dense floating-point tensors with elements, however they are packed."""
    if isinstance(output, Tensor):  # in every step: the quick way
        return (output,) if _counts(output) else ()
    return itertools.islice(filter(_counts, tensors_in(output)), MOST)


def _counts(tensor: Tensor) -> bool:
    return bool(tensor.dtype in DTYPES and tensor.layout is torch.strided and tensor.numel() and not tensor.is_meta)
