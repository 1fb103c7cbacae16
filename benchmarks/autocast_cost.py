"""What does a region cost to enter, and what does every op inside cost, with each policy?

Tensors are 2×2: what is timed is Python and dispatch, the kernels take next to nothing. A row is one op called many
times inside one region, so weights are cast once, as they are in a model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F

import mixprec
from benchmarks.harness import Answer, Bench, Column, Contender, Table

CALLS = 100
REGIONS: Mapping[str, str | None] = {
    "mixprec, no policy": None,
    "torch": "torch",
    "uniform": "uniform",
    "lean": "lean",
    "careful": "careful",
}
"""How a column is called, and the policy of its region."""

PEER = "torch.autocast"
COLUMNS = (
    Column("op", "µs per call"),
    *(Column(name, name, "{:.1f}") for name in (PEER, *REGIONS)),
    Column("bare", "no autocast", "{:.1f}"),
)


def region(name: str, device: str) -> AbstractContextManager[Any]:
    """A bfloat16 region; `bare` is none."""
    if name == PEER:
        return torch.autocast(device, torch.bfloat16)
    if name == "bare":
        return contextlib.nullcontext()
    return mixprec.autocast(device, torch.bfloat16, policy=REGIONS[name])


def ops(device: str) -> Mapping[str, Callable[[], object]]:
    """Ops of every kind: cast down, cast up, promoted, followed, opened, and unknown to every list."""
    x, weight, bias = (torch.randn(2, 2, device=device) for _ in range(3))
    weight.requires_grad_()
    low = x.bfloat16()
    target = torch.tensor([0, 1], device=device)
    return {
        "linear, weight cast once": lambda: F.linear(x, weight),
        "linear, input in bfloat16": lambda: F.linear(low, weight),
        "matmul": lambda: x @ x,
        "layer_norm": lambda: F.layer_norm(low, (2,)),
        "softmax": lambda: F.softmax(low, -1),
        "cross_entropy": lambda: F.cross_entropy(low, target),
        "addcmul (promotes)": lambda: torch.addcmul(x, low, bias),
        "relu (follows)": lambda: torch.relu(low),
        "add (on no list)": lambda: x + x,
        "transpose (a view)": lambda: x.transpose(0, 1),
    }


def run(bench: Bench, bandwidth: float) -> Answer:
    """One table: entering a region, then every op."""
    rows = [_entering(bench), *(_op(bench, name, call) for name, call in ops(bench.device).items())]
    title = "Autocast: microseconds per region and per call of an op on 2×2 tensors"
    return Answer([Table("autocast_cost", title, COLUMNS, rows)])


def _entering(bench: Bench) -> dict[str, Any]:
    def enter_and_leave(name: str) -> Callable[[], None]:
        def call() -> None:
            for _ in range(CALLS):
                with region(name, bench.device):
                    pass

        return call

    return _row(bench, "enter and leave a region", {name: enter_and_leave(name) for name in (PEER, *REGIONS)})


def _op(bench: Bench, op: str, call: Callable[[], object]) -> dict[str, Any]:
    def inside(name: str) -> Callable[[], None]:
        def many() -> None:
            with region(name, bench.device):
                for _ in range(CALLS):
                    call()

        return many

    return _row(bench, op, {name: inside(name) for name in (PEER, *REGIONS, *(["bare"] if _runs(call) else []))})


def _runs(call: Callable[[], object]) -> bool:
    """Whether an op takes its inputs without autocast, which casts mixed ones."""
    try:
        call()
    except RuntimeError:
        return False
    return True


def _row(bench: Bench, op: str, programs: Mapping[str, Callable[[], None]]) -> dict[str, Any]:
    race = bench.race([Contender(name, program) for name, program in programs.items()], seconds=3.0)
    return {"op": op} | {name: race.minimum(name) / CALLS * 1e6 for name in programs}
