"""Which op wrote a piece of memory last, and what it held then; memory that was freed is never taken for new memory.

Storages are known by weak references, which keep an address from being given out again but not its memory
(https://github.com/pytorch/pytorch/blob/v2.13.0/torch/multiprocessing/reductions.py, `StorageWeakRef`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from mixprec._trace._measure import Measured

__all__ = ["Flow"]

_PRUNE = 8192


@dataclass
class _Memory:
    """One storage: the op that wrote it last (None before any did) and what is known of views of it since."""

    alive: StorageWeakRef
    writer: int | None = None
    known: dict[Any, Measured] = field(default_factory=dict)


class Flow:
    """The memory that ops read and write. **Cost** two dictionary look-ups per operand."""

    def __init__(self) -> None:
        self._memories: dict[int, _Memory] = {}
        self._prune_at = _PRUNE

    def writer(self, tensor: Tensor) -> int | None:
        """The index of the op that wrote this tensor's memory last."""
        memory = self._memory(tensor)
        return None if memory is None else memory.writer

    def wrote(self, tensor: Tensor, index: int) -> None:
        """Notes that op `index` wrote the tensor: what was known of its memory no longer holds."""
        memory = self._memory(tensor)
        if memory is not None:
            memory.writer = index
            memory.known.clear()

    def known(self, tensor: Tensor) -> Measured | None:
        """What was measured of exactly this view since its memory was written last."""
        memory = self._memory(tensor)
        return None if memory is None else memory.known.get(_view(tensor))

    def learn(self, tensor: Tensor, measured: Measured) -> None:
        """Keeps what was measured of this view until its memory is written again."""
        memory = self._memory(tensor)
        if memory is not None:
            memory.known[_view(tensor)] = measured

    def _memory(self, tensor: Tensor) -> _Memory | None:
        try:
            storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse tensors and wrappers have none
            return None
        key: int = storage._cdata
        memory = self._memories.get(key)
        if memory is None or _expired(memory):
            memory = self._memories[key] = _Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call] # torch annotates none of it
            if len(self._memories) > self._prune_at:
                self._prune()
        return memory

    def _prune(self) -> None:
        self._memories = {key: memory for key, memory in self._memories.items() if not _expired(memory)}
        self._prune_at = max(_PRUNE, 2 * len(self._memories))


def _expired(memory: _Memory) -> bool:
    return bool(memory.alive.expired())  # type: ignore[no-untyped-call] # torch annotates none of it


def _view(tensor: Tensor) -> tuple[Any, ...]:
    """What tells views of one storage apart, and writings of it that no op did."""
    version = -1 if tensor.is_inference() else tensor._version
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.is_conj(), version
