"""Over a window of micro-batches weights do not change: how many casts does one optimizer step take?

A region of torch's casts every weight again. A `CastCache` that is handed to all regions keeps the casts until the
optimizer steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

import mixprec
from benchmarks import small_gpt
from benchmarks.casts import counted_casts
from benchmarks.harness import (
    CONTENDER,
    MEDIAN,
    MINIMUM,
    QUARTILES,
    RATIO,
    Answer,
    Bench,
    Column,
    Contender,
    Table,
    Target,
)
from mixprec._autocast import CastCache

MICRO_BATCHES = 8
PEER = "torch.autocast"
POLICIES: Mapping[str, str | None] = {
    "mixprec, no policy": None,
    "mixprec, lean": "lean",
    "mixprec, no policy, one CastCache": None,
    "mixprec, lean, one CastCache": "lean",
}
COLUMNS = (
    CONTENDER,
    Column("casts", "casts per step"),
    Column("cast_mib", "cast MiB", "{:.1f}"),
    MEDIAN,
    MINIMUM,
    RATIO,
    QUARTILES,
    Column("loss", "loss after", "{:.4f}"),
)


class Window:
    """A model, and one optimizer step of 8 micro-batches of 1×256 bytes."""

    def __init__(self, name: str, device: str) -> None:
        torch.manual_seed(0)
        self.name, self.device = name, device
        self.model: nn.Module = small_gpt.SmallGPT().to(device)
        text, following = (part.to(device) for part in small_gpt.batch(MICRO_BATCHES))
        self.micro_batches = list(zip(text.split(1), following.split(1), strict=True))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.cache = CastCache() if name.endswith("CastCache") else None
        self.losses: list[torch.Tensor] = []

    def region(self) -> AbstractContextManager[Any]:
        if self.name == PEER:
            return torch.autocast(self.device, torch.bfloat16)
        return mixprec.autocast(self.device, torch.bfloat16, cache_enabled=self.cache, policy=POLICIES[self.name])

    def step(self) -> None:
        total = torch.zeros((), device=self.device)
        for text, following in self.micro_batches:
            with self.region():
                loss = small_gpt.next_byte_loss(self.model(text), following) / MICRO_BATCHES
            loss.backward()
            total += loss.detach()
        self.optimizer.step()
        self.losses.append(total)

    def clear(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None


def run(bench: Bench, bandwidth: float) -> Answer:
    """One table; the cache has to save casts."""
    windows = {name: Window(name, bench.device) for name in (PEER, *POLICIES)}
    race = bench.race([Contender(name, window.step, window.clear) for name, window in windows.items()], seconds=40.0)
    step = min(len(window.losses) for window in windows.values()) - 1
    rows = [race.row(name, PEER) | _measured(window, step) for name, window in windows.items()]
    casts = {row["contender"]: row["casts"] for row in rows}
    title = (
        f"One optimizer step over {MICRO_BATCHES} micro-batches of 1×{small_gpt.CONTEXT} bytes; loss of step {step + 1}"
    )
    saved = casts["mixprec, no policy, one CastCache"] / casts[PEER]
    target = Target("accumulation, one CastCache: share of torch.autocast's casts", 1.0, saved, at_most=True)
    return Answer([Table("accumulation", title, COLUMNS, rows)], [target])


def _measured(window: Window, step: int) -> dict[str, float]:
    loss = window.losses[step].item()
    window.clear()
    casts = counted_casts(window.step)
    return {"casts": casts.count, "cast_mib": casts.bytes / 2**20, "loss": loss}
