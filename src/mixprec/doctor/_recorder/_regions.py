"""Autocast regions, by the line and setting with which they are entered, and what ran inside."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mixprec._trace import user_site
from mixprec.doctor._arm import RegionRecord
from mixprec.doctor._recorder._numbers import dtype_name
from mixprec.doctor._recorder._scene import Scene
from mixprec.records import Location

__all__ = ["Regions"]


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
        stack, versions = self._thread.stack, self._thread.versions
        if not stack or not stack[-1].enabled or not stack[-1].cache or not torch.is_grad_enabled():
            return
        parameters = list(module.parameters(recurse=False))
        changed = sum(versions.get(id(p), p._version) != p._version for p in parameters)
        versions.update((id(p), p._version) for p in parameters)
        if changed:
            self._tell("weights_changed", site=self._thread.stepped, count=changed)

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
