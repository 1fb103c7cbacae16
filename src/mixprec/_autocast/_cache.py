"""A tensor is cast once per dtype while it lives and its version stands; what is found is what a cast would give.

An entry belongs to one tensor object, held weakly, and to the version that the tensor had: an in-place update makes it
void, and so does one of the copy. A copy that belongs to a leaf is kept, because the leaf will be read again. A copy
of an activation is held weakly, so that it lives as long as autograd needs it and not longer; the last one made is
kept as well, so that three projections of one activation find it also where nothing is saved for backward.

Copies are made with gradients recorded whenever the source requires them, so one made under `no_grad` is right
afterwards. Nothing is looked up or stored
- while compiling: the compiler merges equal casts itself;
- in inference mode, inside functorch transforms and for inference tensors: a copy would be wrong outside, or has no
  version;
- under selective checkpointing, whose recomputation must see the ops of the forward pass one for one;
- where `torch.is_autocast_cache_enabled()` is false, as `cache_enabled=False` and CUDA graphs demand.

What no version can show: a write through `tensor.data`, through NumPy or another library, or under
`torch.autograd._unsafe_preserve_version_counter` (as FSDP2 does). Such writes do not show in a copy made before.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

__all__ = ["CastCache", "CastStatistics", "is_weight"]


@dataclass
class CastStatistics:
    """`casts` made, `hits` that needed none, `bytes` written by the casts."""

    casts: int = 0
    hits: int = 0
    bytes: int = 0


class CastCache:
    """Copies of tensors in other dtypes, with statistics.

    A region has one of its own and drops it at the end. A `CastCache` that is handed to several regions
    (`autocast(..., cache_enabled=cache)`) outlives them: over an accumulation window every weight is cast once, and
    again after the optimizer has changed it.

    **Cost**: a hit is one dictionary lookup and two version reads; memory is one copy per weight and dtype, and what
    autograd keeps anyhow for activations. Not for use by two threads at once.
    """

    def __init__(self) -> None:
        self.statistics = CastStatistics()
        self._entries: dict[int, _Entry] = {}
        self._last: torch.Tensor | None = None

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """`tensor` in `dtype`, a copy that is shared with everyone who asked or asks for the same."""
        entry = self._entry(tensor)
        found = entry.find(dtype)
        if found is not None:
            self.statistics.hits += 1
            return found
        copy = self.cast_anew(tensor, dtype)
        entry.keep(copy, strongly=tensor.is_leaf)
        if not tensor.is_leaf:
            self._last = copy
        return copy

    def cast_anew(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """`tensor` in `dtype`, a copy of its own, counted."""
        copy = _recorded_cast(tensor, dtype)
        self.statistics.casts += 1
        self.statistics.bytes += copy.numel() * copy.element_size()
        return copy

    def clear(self) -> None:
        """Forget every copy; the statistics stay."""
        self._entries.clear()
        self._last = None

    def __len__(self) -> int:
        """Tensors that have an entry."""
        return len(self._entries)

    def _entry(self, tensor: torch.Tensor) -> _Entry:
        key = id(tensor)
        entry = self._entries.get(key)
        if entry is None or entry.source() is not tensor or entry.version != tensor._version:
            entry = self._entries[key] = _Entry(tensor, self._entries)
        return entry


class _Entry:
    """The copies of one tensor at one version. Leaves the dictionary that it is in when the tensor dies."""

    __slots__ = ("copies", "source", "version")

    def __init__(self, tensor: torch.Tensor, home: dict[int, _Entry]) -> None:
        key = id(tensor)

        def gone(source: object) -> None:
            if key in home and home[key].source is source:
                del home[key]

        self.source = weakref.ref(tensor, gone)
        self.version = tensor._version
        self.copies: dict[torch.dtype, tuple[Any, int]] = {}

    def find(self, dtype: torch.dtype) -> torch.Tensor | None:
        """The copy in `dtype`, if it lives and nobody has written to it."""
        held = self.copies.get(dtype)
        if held is None:
            return None
        copy: torch.Tensor | None = held[0]() if isinstance(held[0], TensorWeakRef) else held[0]
        return copy if copy is not None and copy._version == held[1] else None

    def keep(self, copy: torch.Tensor, *, strongly: bool) -> None:
        self.copies[copy.dtype] = (copy if strongly else TensorWeakRef(copy), copy._version)


def is_weight(tensor: torch.Tensor) -> bool:
    """What PyTorch's own cache keeps: a float32 leaf that requires grad and is no view."""
    return tensor.is_leaf and tensor.requires_grad and tensor.dtype is torch.float32 and not tensor._is_view()


def may_share(tensor: torch.Tensor) -> bool:
    """Whether a copy of `tensor` made now would be right whenever it is found later."""
    return not (
        torch.is_inference_mode_enabled()
        or not torch.is_autocast_cache_enabled()
        or torch._C._are_functorch_transforms_active()
        or tensor.is_inference()
        or (torch._C._len_torch_dispatch_stack() and _selective_checkpointing())
    )


def _recorded_cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if tensor.requires_grad and not torch.is_grad_enabled():
        with torch.enable_grad():
            return tensor.to(dtype)
    return tensor.to(dtype)


def _selective_checkpointing() -> bool:
    names = {type(mode).__name__ for mode in torch.utils._python_dispatch._get_current_dispatch_mode_stack()}
    return not names.isdisjoint({"_CachingTorchDispatchMode", "_CachedTorchDispatchMode"})
