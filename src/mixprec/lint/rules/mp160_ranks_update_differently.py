"""Ranks make different numbers of scaler updates."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._constants import UNKNOWN
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, facts, last_name
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

    def check(self, view: FileView) -> Iterator[Finding]:
        """Under Join, and in loops whose length depends on the rank."""
        yield from super().check(view)
        known = view.memo(facts)
        for call in view.nodes(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr != "update" or call.args or call.keywords:
                continue
            if not known.is_scaler(last_name(func.value)) or view.owners:
                continue
            for loop in view.loops(call):
                length = _length(view, loop)
                if length is not None:
                    text = f"Each rank calls {view.text(call)} {length} times, which differs between ranks."
                    fix = self.fix("Give every rank the same number of batches, or agree on the scale.")
                    yield self.finding(view, loop.iter if isinstance(loop, ast.For) else loop, text, fix=fix)

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


def _length(view: FileView, loop: ast.AST) -> str | None:
    """The length of `for … in range(length)`, where it is computed from the rank."""
    source = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(source, ast.Call) or view.dotted(source.func) != "range" or not source.args:
        return None
    stops = source.args if len(source.args) == 1 else source.args[1:2]
    first = source.args[0] if len(source.args) > 1 else None
    if first is not None and view.constant(first) is UNKNOWN:
        return None
    return ast.unparse(stops[0]) if _depends(stops[0]) else None


def _depends(node: ast.expr) -> bool:
    """Whether a sum or product has the rank in it; a quotient or remainder may be meant to even things out."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        return _depends(node.left) or _depends(node.right)
    if isinstance(node, ast.Call):
        return last_name(node.func) == "get_rank"
    return isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) in ("global_rank", "local_rank", "rank")
