"""A training step of a small GPT under torch.autocast and each policy: time, memory until backward, casts, loss."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

import mixprec
from benchmarks import small_gpt
from benchmarks.casts import counted_casts
from benchmarks.harness import MEDIAN, MINIMUM, QUARTILES, RATIO, Answer, Bench, Column, Contender, Race, Table, Target
from benchmarks.saved import saved_bytes

PEER = "torch.autocast"
POLICIES: Mapping[str, str | None] = {
    "mixprec, no policy": None,
    "mixprec, torch": "torch",
    "mixprec, uniform": "uniform",
    "mixprec, lean": "lean",
    "mixprec, careful": "careful",
}
DTYPE = torch.bfloat16
LOSS_AT = 20
"""The step whose losses are compared; the last one that all have done, if they did not get that far."""

COLUMNS = (
    Column("contender", ""),
    MEDIAN,
    MINIMUM,
    RATIO,
    QUARTILES,
    Column("saved_mib", "saved MiB", "{:.1f}"),
    Column("saved_share", "of torch's", "{:.3f}"),
    Column("casts", "casts"),
    Column("cast_mib", "cast MiB", "{:.1f}"),
    Column("first_loss", "first loss", "{:.5f}"),
    Column("last_loss", "last loss", "{:.4f}"),
)


def region(name: str, device: str) -> AbstractContextManager[Any]:
    """A region of that name; `float32` is none."""
    if name in ("float32", PEER):
        return torch.autocast(device, DTYPE, enabled=name == PEER)
    return mixprec.autocast(device, DTYPE, policy=POLICIES[name])


class Training:
    """A model that is trained on one batch; every step starts a region of the same name."""

    def __init__(self, name: str, device: str, *, fused: bool = False) -> None:
        torch.manual_seed(0)
        self.name, self.device = name, device
        self.model: nn.Module = small_gpt.SmallGPT(fused=fused).to(device)
        self.text, self.next = (part.to(device) for part in small_gpt.batch())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.losses: list[Tensor] = []

    def forward(self) -> Tensor:
        with region(self.name, self.device):
            return small_gpt.next_byte_loss(self.model(self.text), self.next)

    def step(self) -> None:
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())

    def clear(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None


def run(bench: Bench, bandwidth: float) -> Answer:
    """Two shapes of attention: three projections of one activation, and one."""
    apart, race = _table(bench, fused=False)
    together, _ = _table(bench, fused=True)
    return Answer([apart, together], _targets(apart, race))


def _table(bench: Bench, *, fused: bool) -> tuple[Table, Race]:
    names = (PEER, *POLICIES, "float32")
    trainings = {name: Training(name, bench.device, fused=fused) for name in names}
    race = bench.race([Contender(n, t.step, t.clear) for n, t in trainings.items()], seconds=20.0 if fused else 90.0)
    step = min(LOSS_AT, *(len(training.losses) for training in trainings.values())) - 1
    rows = [race.row(name, PEER) | _measured(training, step) for name, training in trainings.items()]
    theirs = rows[0]["saved_mib"]
    for row in rows:
        row["saved_share"] = row["saved_mib"] / theirs
    shape = "one projection for query, key and value" if fused else "query, key and value projected apart"
    title = (
        f"Training step of a GPT with {small_gpt.BLOCKS} blocks of width {small_gpt.WIDTH} on {small_gpt.BATCH}×"
        f"{small_gpt.CONTEXT} bytes, {shape}; losses of steps 1 and {step + 1}"
    )
    return Table(f"gpt_{'fused' if fused else 'apart'}", title, COLUMNS, rows), race


def _measured(training: Training, step: int) -> dict[str, float]:
    first, last = training.losses[0].item(), training.losses[step].item()
    saved = saved_bytes(training.forward, training.model.parameters())
    casts = counted_casts(training.step)
    return {
        "saved_mib": saved / 2**20,
        "casts": casts.count,
        "cast_mib": casts.bytes / 2**20,
        "first_loss": first,
        "last_loss": last,
    }


def _targets(table: Table, race: Race) -> list[Target]:
    rows = {row["contender"]: row for row in table.rows}
    lean, theirs = rows["mixprec, lean"], rows[PEER]
    first, last = (abs(lean[key] / theirs[key] - 1) for key in ("first_loss", "last_loss"))
    fast = {name: race.ratio(f"mixprec, {name}", PEER).median for name in ("torch", "uniform", "lean")}
    return [
        Target("GPT, lean: share of torch.autocast's saved bytes", 0.82, lean["saved_share"], at_most=True),
        Target("GPT, lean: relative difference of the first loss", 1e-4, first, at_most=True),
        Target("GPT, lean: relative difference of the last loss", 1e-2, last, at_most=True),
        Target("GPT, torch policy: speed as a share of torch.autocast's", 0.98, fast["torch"]),
        Target("GPT, uniform: times as fast as torch.autocast", 1.0, fast["uniform"]),
        Target("GPT, lean: times as fast as torch.autocast", 1.0, fast["lean"]),
    ]
