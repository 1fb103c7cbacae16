"""The tensors in what a module or an op was given or returned, in order, however they are packed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

__all__ = ["tensors_in"]

DEPTH = 4
"""Packings inside each other that are opened; a structure may hold itself."""


def tensors_in(value: Any, depth: int = DEPTH) -> Iterator[Tensor]:
    """The tensors in `value`: itself, or those of tuples, lists, mappings and dataclasses, `depth` of them deep."""
    if isinstance(value, Tensor):
        yield value
    elif depth:
        for part in _parts(value):
            yield from tensors_in(part, depth - 1)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (tuple, list)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return ()
