"""What a module returns is searched for the tensors that can overflow, however they are packed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["DTYPES", "floating"]

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}
"""Formats whose headroom is worth knowing, by dtype."""

DEPTH = 4
MOST = 8


def floating(output: Any) -> Iterator[Tensor]:
    """At most 8 dense floating-point tensors with elements: of tuples, lists, mappings and dataclasses as well."""
    if isinstance(output, Tensor):
        if _counts(output):
            yield output
        return
    for count, tensor in enumerate(_tensors(output, DEPTH)):
        if count == MOST:
            return
        yield tensor


def _counts(tensor: Tensor) -> bool:
    return bool(tensor.dtype in DTYPES and tensor.layout is torch.strided and tensor.numel() and not tensor.is_meta)


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if _counts(value):
            yield value
    elif depth:
        for part in _parts(value):
            yield from _tensors(part, depth - 1)


def _parts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (tuple, list)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return ()
