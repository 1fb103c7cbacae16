"""One rank leaves the iteration on a test that the others do not see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol import last_name
from mixprec.records import Finding, Severity

_FINITE = frozenset({"isfinite", "isinf", "isnan"})
_READING = _FINITE | {"abs", "all", "any", "bool", "cpu", "detach", "float", "item", "max", "mean", "sum"}
"""Calls whose results are this rank's own."""
_DISTRIBUTED = re.compile(r"DistributedDataParallel|init_process_group|fully_shard|FullyShardedDataParallel")
_SHARED = re.compile(r"reduce|gather|broadcast", re.IGNORECASE)


class RankLeavesEarly(Rule):
    """`if not torch.isfinite(loss): continue` before backward in a distributed loop."""

    code = "MP161"
    name = "rank-leaves-early"
    severity = Severity.WARNING
    title = "One rank leaves the iteration on a test of its own loss."
    why = (
        "backward() talks to the other ranks. A rank that skips it leaves them waiting: their collectives pair up with "
        "those of its next iteration, gradients of different steps are averaged, and in the end the run hangs."
    )
    bad = """\
import torch
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(torch.nn.Linear(8, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    if not torch.isfinite(loss):
        continue
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    good = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(torch.nn.Linear(8, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    bad = (~torch.isfinite(loss)).float()
    dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    if bad:
        continue
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        "https://github.com/ecmwf/WeatherGenerator/pull/2718",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """Only loops whose backward follows the test, and tests of values that no collective has made equal."""
        if not _DISTRIBUTED.search(view.source) or view.owners:
            return
        for test in view.nodes(ast.If):
            scope = _left(view, test)
            if scope is None or not _is_local(test, scope):
                continue
            if any(call.lineno > test.lineno for call in _backwards(scope)):
                text = "Only the rank with a bad loss leaves here; the others wait for it in backward()."
                fix = self.fix("Reduce the flag over the ranks (MAX) first, or leave the skip to the scaler.")
                yield self.finding(view, test.test, text, fix=fix)


def _left(view: FileView, test: ast.If) -> ast.AST | None:
    """The loop or function that the body of `test` leaves; None where it does not, or does the backward itself."""
    if any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(test)):
        return None
    loops = view.loops(test)
    if loops and any(isinstance(stmt, (ast.Continue, ast.Break)) for stmt in test.body):
        return loops[0]
    return view.function(test) if any(isinstance(stmt, ast.Return) for stmt in test.body) else None


def _is_local(test: ast.If, scope: ast.AST) -> bool:
    """Whether the test asks for the finiteness of a value that no collective before it has touched.

    A function that the value is given to may be one that asks the other ranks.
    """
    if any(isinstance(node, ast.Call) and last_name(node.func) not in _READING for node in ast.walk(test.test)):
        return False
    asked = [n for n in ast.walk(test.test) if isinstance(n, ast.Call) and last_name(n.func) in _FINITE]
    names = {last_name(value) for call in asked for value in _subjects(call)} - {""}
    if not names and not any(_is_nan_test(node) for node in ast.walk(test.test)):
        return False
    return not any(
        isinstance(node, ast.Call) and _SHARED.search(last_name(node.func)) and node.lineno <= test.lineno
        for node in ast.walk(scope)
    )


def _subjects(call: ast.Call) -> list[ast.expr]:
    """`loss` of `torch.isfinite(loss)` and of `loss.isfinite()`."""
    own = [call.func.value] if isinstance(call.func, ast.Attribute) and not call.args else []
    return [*call.args, *own]


def _is_nan_test(node: ast.AST) -> bool:
    """`loss != loss`, which only NaN is."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.NotEq)
        and last_name(node.left) != ""
        and ast.dump(node.left) == ast.dump(node.comparators[0])
    )


def _backwards(scope: ast.AST) -> list[ast.Call]:
    return [n for n in ast.walk(scope) if isinstance(n, ast.Call) and last_name(n.func) == "backward"]
