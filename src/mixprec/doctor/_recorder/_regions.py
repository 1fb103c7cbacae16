"""Autocast regions, by the line and setting with which they are entered, and what ran inside."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mixprec._trace import user_site
from mixprec.doctor._arm import RegionRecord
from mixprec.doctor._recorder._graph import nodes_under
from mixprec.doctor._recorder._numbers import dtype_name
from mixprec.doctor._recorder._scene import Scene
from mixprec.records import Location

__all__ = ["Regions"]

CAST = "ToCopyBackward0"
"""What autograd calls the step from a weight to its 16-bit cast."""

REACH = 4000
"""Nodes of a graph that are looked at."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.versions: dict[int, int] = {}
        self.stepped: Location | None = None


class Regions:
    """Counts, per line and setting."""

    def __init__(self, scene: Scene, tell: Callable[..., None]) -> None:
        self._scene = scene
        self._tell = tell
        self._records: dict[Any, RegionRecord] = {}
        self._thread = _Thread()
        self._broken: tuple[int, str | None] = (0, None)

    def entered(self, region: torch.autocast) -> None:
        """A region begins."""
        record = RegionRecord(
            site=user_site(1),
            device=region.device,
            dtype=dtype_name(region.fast_dtype),
            enabled=bool(region._enabled),
            cache=bool(getattr(region, "_cache_enabled", True)),
            in_thread=threading.current_thread() is not threading.main_thread(),
        )
        key = record
        self._thread.stack.append(key)
        known = self._records.get(key)
        self._records[key] = dataclasses.replace(known or key, entered=(known or key).entered + 1)
        if known is None:
            self._write(self._records[key])

    def left(self, region: torch.autocast) -> None:
        """A region ends, perhaps by an exception: the innermost one that it leaves is where it was raised."""
        error = sys.exc_info()[1]
        if error is not None and self._broken[0] != id(error):
            self._broken = (id(error), dtype_name(region.fast_dtype) if region._enabled else None)
        if self._thread.stack:
            self._thread.stack.pop()
        if not self._thread.stack:
            self._thread.versions, self._thread.stepped = {}, None

    def around(self, error: BaseException) -> str | None:
        """The dtype of the region in which `error` was raised, None outside."""
        noted, dtype = self._broken
        return dtype if noted == id(error) else None

    def stepped(self) -> None:
        """An optimizer stepped."""
        if self._thread.stack:
            self._thread.stepped = user_site(1)

    def used(self, module: nn.Module) -> None:
        """A leaf module used its weights: one that changed since its last use in the same region has a stale cast."""
        if self._caches():
            self._compare(list(module.parameters(recurse=False)))

    def differentiated(self, outputs: Sequence[Tensor]) -> None:
        """A backward begins inside: it goes through the casts of the weights, whoever used them."""
        if self._caches():
            self._compare(list(_cast_leaves(outputs)))

    def _caches(self) -> bool:
        stack = self._thread.stack
        return bool(stack) and stack[-1].enabled and stack[-1].cache and torch.is_grad_enabled()

    def _compare(self, parameters: Sequence[Tensor]) -> None:
        versions = self._thread.versions
        changed = sum(versions.get(id(p), p._version) != p._version for p in parameters)
        versions.update((id(p), p._version) for p in parameters)
        if changed:
            self._tell("weights_changed", site=self._thread.stepped or self._thread.stack[-1].site, count=changed)

    def ran(self, low: bool) -> None:
        """A leaf module ran inside; `low`: its output has 16 bits."""
        for key in self._thread.stack[-1:]:
            known = self._records[key]
            self._records[key] = dataclasses.replace(known, modules=known.modules + 1, low_ops=known.low_ops + low)

    def close(self) -> None:
        """Writes the final counts."""
        for record in self._records.values():
            self._write(record)

    def _write(self, record: RegionRecord) -> None:
        self._scene.writer.record(dataclasses.replace(record, rank=self._scene.writer.rank))


def _cast_leaves(outputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """The leaves whose casts the graph of `outputs` goes through; of a large one those of its first nodes."""
    for node in nodes_under(outputs, REACH):
        if node.name() == CAST:
            yield from (after.variable for after, _ in node.next_functions if hasattr(after, "variable"))
