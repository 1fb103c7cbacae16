"""Ranks make different numbers of scaler updates."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class RanksUpdateDifferently(OrderRule):
    """`scaler.update()` inside `with Join(…)`."""

    code = "MP160"
    name = "ranks-update-differently"
    severity = Severity.WARNING
    title = "Ranks make different numbers of scaler updates."
    why = (
        "Join is for uneven inputs: a rank that has run out no longer calls update(). Scale and growth counter then "
        "differ between ranks, and averaged gradients mix two scales, in silence."
    )
    bad = """\
import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(torch.nn.Linear(8, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
with Join([model]):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    good = """\
import torch
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(torch.nn.Linear(8, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    sources = (
        "https://github.com/pytorch/pytorch/issues/90057",
        "https://github.com/pytorch/pytorch/issues/136009",
    )
    kinds = ("update-in-join",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the Join context."""
        text = f"Under Join the ranks call scaler.update() a different number of times{conclusion.when}."
        fix = self.fix("Give every rank the same number of batches, or agree on the scale.")
        return self.finding(view, conclusion.fault.anchor, text, fix=fix)
