"""A tensor is cast once per dtype while it lives and its version stands; what is found is what a cast would give.

An entry belongs to one tensor object, held weakly, and to the version that the tensor had: an in-place update makes it
void, and so does one of the copy. A copy of a leaf that requires grad is kept, because a weight is read again. A copy
of an activation is held weakly, so that it lives as long as autograd needs it and not longer; the last one made is
kept as well, so that three projections of one activation find it also where nothing is saved for backward.

Copies are made with gradients recorded whenever the source requires them, so one made under `no_grad` is right
afterwards. Nothing is looked up or stored
- while compiling: the compiler merges equal casts itself;
- in inference mode, inside functorch transforms and for inference tensors: a copy would be wrong outside, or has no
  version;
- where `torch.is_autocast_cache_enabled()` is false, as `cache_enabled=False` and CUDA graphs demand.

Selective checkpointing compares the ops of a recomputation with those of its forward one for one. Inside it, copies are
found only among those made in the same run, and of activations only the last one made, so that both runs cast alike.

What no version can show: a write through `tensor.data`, through NumPy or another library, or under
`torch.autograd._unsafe_preserve_version_counter` (as FSDP2 does). Such writes do not show in a copy made before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

__all__ = ["CastCache", "CastStatistics", "is_weight", "may_share"]


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
        self._copies = _Copies()
        self._selective: weakref.WeakKeyDictionary[Any, _Copies] | None = None

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """`tensor` in `dtype`, a copy that is shared with everyone who asked or asks for the same."""
        copies = self._copies_here()
        found = copies.find(tensor, dtype)
        if found is not None:
            self.statistics.hits += 1
            return found
        copy = self.cast_anew(tensor, dtype)
        copies.keep(tensor, copy)
        return copy

    def cast_anew(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """`tensor` in `dtype`, a copy of its own, counted."""
        copy = _recorded_cast(tensor, dtype)
        self.statistics.casts += 1
        self.statistics.bytes += copy.numel() * copy.element_size()
        return copy

    def clear(self) -> None:
        """Forget every copy; the statistics stay."""
        self._copies.clear()
        if self._selective is not None:
            for copies in self._selective.values():
                copies.clear()
            self._selective = None

    def __len__(self) -> int:
        """Tensors that have an entry."""
        return len(self._copies.entries)

    def _copies_here(self) -> _Copies:
        run = _selective_run() if torch._C._len_torch_dispatch_stack() else None
        if run is None:
            return self._copies
        if self._selective is None:
            self._selective = weakref.WeakKeyDictionary()
        if run not in self._selective:
            self._selective[run] = _Copies(only_last=True)
        return self._selective[run]


class _Copies:
    """Copies by source. `only_last`: of activations, none but the last one made is ever found."""

    def __init__(self, only_last: bool = False) -> None:
        self.entries: dict[int, _Entry] = {}
        self._last: torch.Tensor | None = None
        self._only_last = only_last

    def find(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
        entry = self.entries.get(id(tensor))
        if entry is None or entry.source() is not tensor or entry.version != tensor._version:
            return None
        copy = entry.find(dtype)
        return None if self._only_last and copy is not self._last and not _is_trained(tensor) else copy

    def keep(self, tensor: torch.Tensor, copy: torch.Tensor) -> None:
        entry = self.entries.get(id(tensor))
        if entry is None or entry.source() is not tensor or entry.version != tensor._version:
            entry = self.entries[id(tensor)] = _Entry(tensor, self._forget)
        trained = _is_trained(tensor)
        entry.keep(copy, strongly=trained)
        if not trained:
            self._last = copy

    def clear(self) -> None:
        self.entries.clear()
        self._last = None

    def _forget(self, key: int, source: object) -> None:
        """The tensor with that id has died."""
        entry = self.entries.get(key)
        if entry is not None and entry.source is source:
            del self.entries[key]
            if self._last is not None and entry.find(self._last.dtype) is self._last:
                self._last = None


class _Entry:
    """The copies of one tensor at one version. `forget` is called with its id when it dies."""

    __slots__ = ("copies", "source", "version")

    def __init__(self, tensor: torch.Tensor, forget: Callable[[int, object], None]) -> None:
        key = id(tensor)
        self.source = weakref.ref(tensor, lambda source: forget(key, source))
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
    return _is_trained(tensor) and tensor.dtype is torch.float32 and not tensor._is_view()


def may_share(tensor: torch.Tensor) -> bool:
    """Whether a copy of `tensor` made now would be right whenever it is found later."""
    return not (
        torch.is_inference_mode_enabled()
        or not torch.is_autocast_cache_enabled()
        or torch._C._are_functorch_transforms_active()
        or tensor.is_inference()
    )


def _is_trained(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf


def _recorded_cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if tensor.requires_grad and not torch.is_grad_enabled():
        with torch.enable_grad():
            return tensor.to(dtype)
    return tensor.to(dtype)


def _selective_run() -> Any:
    """The dispatch mode of the selective checkpoint that is running or being recomputed; None outside of one."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    names = ("_CachingTorchDispatchMode", "_CachedTorchDispatchMode")
    return next((mode for mode in reversed(modes) if type(mode).__name__ in names), None)
