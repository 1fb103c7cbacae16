"""Every tensor in a nest of outputs is multiplied by the scale, and the nest keeps its shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def scaled(outputs: Any, times_scale: Callable[[Tensor], Tensor]) -> Any:
    """`outputs` with `times_scale` applied to its tensors. Lists, tuples, named tuples and mappings keep their type.

    Other iterables are multiplied lazily, as torch's scaler does.

    Raises: ValueError for what is neither a tensor nor an iterable of tensors.
    """
    if isinstance(outputs, Tensor):
        return times_scale(outputs)
    if isinstance(outputs, (str, bytes)) or not isinstance(outputs, Iterable):
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")
    if isinstance(outputs, Mapping):
        return _like(outputs, {key: scaled(value, times_scale) for key, value in outputs.items()})
    each = (scaled(value, times_scale) for value in outputs)
    if isinstance(outputs, tuple) and hasattr(outputs, "_fields"):
        return type(outputs)(*each)
    return type(outputs)(each) if isinstance(outputs, (list, tuple)) else each


def _like(mapping: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    kind: Any = type(mapping)
    return items if kind is dict else kind(items)


def times(output: Tensor, scale: Tensor) -> Tensor:
    """`output` × `scale`. Float16 is multiplied in float32, where 65536 times a loss above 1 still fits."""
    scale = scale.to(device=output.device, non_blocking=True)
    return (output.float() if output.dtype is torch.float16 else output) * scale
