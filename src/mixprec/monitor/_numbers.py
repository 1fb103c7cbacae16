"""The numbers of a step stay on their device until it is over; then they travel together, and are read a step later.

One stack and one copy per accelerator and dtype, however many numbers there are; the copy is asynchronous, into pinned
memory, and nobody waits for it. Numbers in the host's memory are read where they are noted.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Flight", "Numbers"]

Group = tuple[torch.device, torch.dtype]


class Flight:
    """Numbers on their way to the host."""

    def __init__(
        self,
        known: dict[Hashable, list[float]],
        order: list[tuple[Hashable, Group, int]],
        copies: dict[Group, tuple[Tensor, Any]],
    ) -> None:
        self._known = known
        self._order = order
        self._copies = copies

    @property
    def landed(self) -> bool:
        """Whether reading needs no waiting."""
        return not self._copies or all(event is None or event.query() for _, event in self._copies.values())

    @property
    def failed(self) -> bool:
        """Whether the step is known to have failed, without waiting: everything has arrived, and says so."""
        known = self._known
        return not self._copies and (any(known.get("found_inf", ())) or not math.isfinite(sum(known.get("loss", ()))))

    def read(self) -> dict[Hashable, list[float]]:
        """The numbers by key, in the order in which they were added; waits for those that have not landed."""
        if not self._copies:
            return self._known
        values, place = {}, dict.fromkeys(self._copies, 0)
        for group, (tensor, event) in self._copies.items():
            if event is not None:
                event.synchronize()
            values[group] = tensor.tolist()
        found = {key: list(numbers) for key, numbers in self._known.items()}
        for key, group, count in self._order:
            start = place[group]
            place[group] = start + count
            found.setdefault(key, []).extend(values[group][start : start + count])
        return found


class Numbers:
    """Collects tensors of one or more numbers under keys; a key that is added twice gets both."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[float]] = {}
        self._order: list[tuple[Hashable, Group, int]] = []
        self._groups: dict[Group, list[Tensor]] = {}

    def add(self, key: Hashable, tensor: Tensor) -> None:
        """Notes `tensor`, of any shape and real dtype; one on an accelerator as it is when the step ends.

        **Cost**: no kernel.
        """
        if tensor.is_cpu:
            noted = self._known.setdefault(key, [])
            if tensor.dim() == 0:
                noted.append(tensor.item())
            else:
                noted += tensor.reshape(-1).tolist()
            return
        group = (tensor.device, tensor.dtype)
        self._order.append((key, group, tensor.numel()))
        self._groups.setdefault(group, []).append(tensor.detach().reshape(-1))

    def leave(self) -> Flight:
        """Starts the copy. Cost: at most 3 kernels per device and dtype, no host sync."""
        copies = {group: _departed(tensors) for group, tensors in self._groups.items()} if self._groups else {}
        return Flight(self._known, self._order, copies)


def _departed(tensors: list[Tensor]) -> tuple[Tensor, Any]:
    together = torch.cat(tensors)
    together = together if together.dtype is torch.float64 else together.to(torch.float32)
    if together.device.type != "cuda":
        return together.to("cpu"), None
    host = torch.empty(together.shape, dtype=together.dtype, pin_memory=True)
    host.copy_(together, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch leaves it untyped
    event.record(torch.cuda.current_stream(together.device))
    return host, event
