"""A running total of 16 bits stops growing when what is added is below its last bit."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Tag, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity


class RunningSumInHalf(Rule):
    """`total = torch.zeros((), dtype=torch.bfloat16)`, to which every batch adds its loss."""

    code = "MP068"
    name = "running-sum-in-half"
    severity = Severity.WARNING
    title = "A running total is kept in 16 bits."
    why = "A bfloat16 total of 256 does not change when 0.5 is added, so a logged loss or a count stops growing."
    bad = """\
import torch


def average(losses):
    total = torch.zeros((), dtype=torch.bfloat16)
    for loss in losses:
        total += loss.detach()
    return total / len(losses)
"""
    good = """\
import torch


def average(losses):
    total = torch.zeros((), dtype=torch.float32)
    for loss in losses:
        total += loss.detach()
    return total / len(losses)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per addition."""
        for hit in held(view, lambda trace: _additions(trace, view)):
            advice = "Make the total float32 (or a Python float) and add loss.detach().float()."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _additions(trace: Trace, view: FileView) -> Iterator[Hit]:
    for event in trace.of("add"):
        total = event.tensor()
        if total is None or not total.low or not _repeats(event, total, view):
            continue
        if Tag.ACCUMULATOR in total.tags or (_is_zeros(total.origin, view) and _counts(event.node, view)):
            yield Hit(event.node, f"The total is {spoken(total)} and stops growing.")


_COUNTS = frozenset({"bincount", "count_nonzero", "histc", "histogramdd"})


def _is_zeros(made: ast.AST | None, view: FileView) -> bool:
    """Whether a total was made as zeros, of however many elements."""
    name = view.dotted(made.func) if isinstance(made, ast.Call) else None
    return name is not None and name.rpartition(".")[2] in ("zeros", "zeros_like", "new_zeros")


def _counts(node: ast.AST, view: FileView) -> bool:
    """Whether what is added are counts: how often each class was met, how many answers were right."""
    added = node.value if isinstance(node, ast.AugAssign) else node.right if isinstance(node, ast.BinOp) else None
    if isinstance(node, ast.Call) and node.args:
        added = node.args[0]
    if isinstance(added, ast.Name):
        values = view.assignments(view.function(node) or view.tree).get(added.id, ())
        added = values[0] if len(values) == 1 else None
    calls = [part for part in ast.walk(added) if isinstance(part, ast.Call)] if added is not None else []
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in _COUNTS for call in calls)


def _repeats(event: Event, total: Tensor, view: FileView) -> bool:
    """Whether the sum is made again and again, and the total not."""
    if not (event.inplace or _is_assigned_back(event.node, view)):
        return False
    made_in = view.loops(total.origin) if total.origin is not None else []
    return any(loop not in made_in for loop in view.loops(event.node)) or _is_kept(event.node, total.origin, view)


def _is_kept(node: ast.AST, origin: ast.AST | None, view: FileView) -> bool:
    """Whether the total is an attribute that `__init__` makes and another method of the class adds to."""
    made, adding = view.function(origin) if origin is not None else None, view.function(node)
    if not isinstance(made, ast.FunctionDef) or made.name != "__init__" or not isinstance(adding, ast.FunctionDef):
        return False
    target = view.statement(node)
    kept = isinstance(target, (ast.Assign, ast.AugAssign))
    return kept and adding is not made and view.parent(made) is view.parent(adding)


def _is_assigned_back(node: ast.AST, view: FileView) -> bool:
    """`total = total + x`."""
    parent = view.parent(node)
    if not isinstance(parent, ast.Assign) or not isinstance(node, ast.BinOp):
        return False
    return ast.unparse(node.left) in {ast.unparse(target) for target in parent.targets}
