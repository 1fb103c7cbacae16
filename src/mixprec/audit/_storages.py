"""Each storage has one number from its first sighting to its death, and its death is told once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mixprec.audit._log import Ref, Storage

__all__ = ["Storages", "dtype_name", "parts_of"]


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def parts_of(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that hold the memory of `tensor`: itself, or what a wrapper (quantized, sharded) is made of."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    for attribute in flatten()[0]:
        yield from parts_of(getattr(tensor, attribute))


class Storages:
    """Numbers for storages. `on_freed` is called with the number when a storage dies, in whatever thread that is."""

    def __init__(self, on_freed: Callable[[int], None]) -> None:
        self.known: dict[int, Storage] = {}
        self._numbers: dict[int, int] = {}
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._on_freed = on_freed

    def ref(self, tensor: Tensor, *, before: bool = False) -> Ref:
        """`tensor` as a record; a storage that was not seen yet gets the next number. **Cost**: Python only."""
        item = tensor.element_size() if tensor.layout is torch.strided else 0
        shape = tuple(tensor.shape)
        expanded = item > 0 and any(s == 0 and d > 1 for s, d in zip(tensor.stride(), shape, strict=True))
        return Ref(self._number(tensor, before), dtype_name(tensor.dtype), shape, tensor.numel() * item, expanded)

    def has(self, tensor: Tensor) -> bool:
        """Whether the storage was seen."""
        storage = _storage(tensor)
        return storage is not None and storage._cdata in self._numbers

    def _number(self, tensor: Tensor, before: bool) -> int:
        storage = _storage(tensor)
        if storage is None:
            return -1
        key = storage._cdata
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.known)
            self.known[number] = Storage(
                storage.nbytes(), tensor.device.type, dtype_name(tensor.dtype), tuple(tensor.shape), before
            )
            self._watched[key] = weakref.ref(storage, lambda _: self._gone(key, number))
        return number

    def _gone(self, key: int, number: int) -> None:
        if self._numbers.get(key) == number:
            del self._numbers[key], self._watched[key]
            self._on_freed(number)


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    """None for what has none (sparse tensors, wrappers)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
