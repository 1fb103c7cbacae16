"""Reading a value from the device makes the host wait until everything before it has run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

READS = ("item", "tolist")
FEWEST = 2
"""One read per step, for the log, is what most scripts have."""


class SyncEveryStep(Rule):
    """`loss.item()` and `accuracy.item()` in every iteration of a training loop."""

    code = "MP104"
    name = "sync-every-step"
    severity = Severity.INFO
    title = "A training loop with AMP reads several values from the device in every step."
    why = "At each read the host waits for the device and cannot run ahead; with short steps that eats what AMP saves."
    bad = """\
import torch


def train(model, loss_fn, optimizer, loader):
    total, largest = 0.0, 0.0
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        largest = max(largest, loss.item())
"""
    good = """\
import torch


def train(model, loss_fn, optimizer, loader):
    total = torch.zeros(())
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
    )
    words = ("autocast", "GradScaler")

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per loop, at its first read."""
        loops: list[ast.For | ast.While] = [*view.nodes(ast.For)]
        for loop in [*loops, *view.nodes(ast.While)]:
            if any(_is_backward(node) for node in _own(loop)):
                reads = [node for node in _own(loop) if _reads(node) and not _is_guarded(view, node, loop)]
                if len(reads) >= FEWEST:
                    message = f"Each step waits for the device {len(reads)} times, here first."
                    fix = self.fix("Keep the tensors and read them together, every so many steps.")
                    yield self.finding(view, reads[0], message, fix=fix)


def _own(loop: ast.For | ast.While) -> Iterator[ast.AST]:
    """What stands in a loop, but not in a loop or function inside it."""
    waiting: list[ast.AST] = [*loop.body]
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (ast.For, ast.While, ast.FunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS


def _is_guarded(view: FileView, node: ast.AST, loop: ast.AST) -> bool:
    """Whether a test inside the loop decides about the read."""
    for ancestor in view.ancestors(node):
        if ancestor is loop:
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp)):
            return True
    return False
