"""Leaving a region empties the cache of cast weights: a region inside an inner loop casts them in every iteration."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity


class TooManyCasts(Rule):
    """`for t in range(n): with torch.autocast(...): h = cell(x[t], h)`, and one backward after the loop."""

    code = "MP105"
    name = "too-many-casts"
    severity = Severity.INFO
    title = "An autocast region is entered in every iteration of a loop within one forward pass."
    why = "The cast copies of the weights are kept until the outermost region ends, so each iteration casts them anew."
    bad = """\
import torch


def step(cell, frames, loss_fn, target):
    state = None
    for frame in frames:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            state = cell(frame, state)
    loss = loss_fn(state.float(), target)
    loss.backward()
"""
    good = """\
import torch


def step(cell, frames, loss_fn, target):
    state = None
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for frame in frames:
            state = cell(frame, state)
    loss = loss_fn(state.float(), target)
    loss.backward()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.cpp",)
    words = ("autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per region."""
        for node in view.nodes(ast.With):
            context = next((item.context_expr for item in node.items if _is_region(view, item.context_expr)), None)
            loops = view.loops(node)
            if context is None or not loops or _has_backward(loops[0]):
                continue
            if any(_has_backward(stmt) for stmt in _after(view, loops[0])):
                message = "Each iteration of this loop casts the weights again; one backward follows the loop."
                yield self.finding(view, context, message, fix=self.fix("Enter the region once, around the loop."))


def _is_region(view: FileView, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or view.dotted(node.func) not in AUTOCASTS:
        return False
    return view.constant(view.argument(node, None, "enabled")) is not False


def _after(view: FileView, loop: ast.stmt) -> list[ast.stmt]:
    """The statements that follow a loop in its block."""
    block = view.block(loop)
    return block[block.index(loop) + 1 :]


def _has_backward(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "backward"
        for inner in ast.walk(node)
    )
