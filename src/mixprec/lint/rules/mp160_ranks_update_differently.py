"""Ranks make different numbers of scaler updates."""

from __future__ import annotations

import ast

from mixprec.lint._constants import UNKNOWN
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
        """The place is the Join context. Loops of a constant length run equally often everywhere."""
        join = conclusion.fault.anchor
        updates = [node for node in conclusion.fault.others if view.parent(node) is not None]
        loops = [loop for node in updates for loop in view.loops(node) if join in _below(view, loop)]
        if loops and all(_is_constant(view, loop) for loop in loops):
            return None
        text = f"Under Join the ranks call scaler.update() a different number of times{conclusion.when}."
        fix = self.fix("Give every rank the same number of batches, or agree on the scale.")
        return self.finding(view, join, text, fix=fix)


def _below(view: FileView, loop: ast.AST) -> list[ast.AST]:
    """What the `with` statements around `loop` enter."""
    items = [a.items for a in view.ancestors(loop) if isinstance(a, (ast.With, ast.AsyncWith))]
    return [item.context_expr for several in items for item in several]


def _is_constant(view: FileView, loop: ast.AST) -> bool:
    """Whether `loop` runs over a range that is the same in every process."""
    source = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    if not isinstance(source, ast.Call) or view.dotted(source.func) != "range":
        return False
    return all(view.constant(arg) is not UNKNOWN for arg in source.args)
