"""An autocast object does something only while it is entered."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, held
from mixprec.records import Finding, Severity

PRODUCTS = ("bmm", "conv1d", "conv2d", "conv3d", "linear", "matmul", "mm")


class AutocastWithoutEffect(Rule):
    """`torch.autocast("cuda")` on a line of its own, in a variable that nothing uses, or around the wrong lines."""

    code = "MP080"
    name = "autocast-without-effect"
    severity = Severity.ERROR
    title = "An autocast context is never entered, or entered around nothing that it affects."
    why = "torch.autocast(...) is no switch: what runs outside its `with` or `@` runs in float32, and nothing says so."
    bad = """\
import torch


def step(model, loss_fn, x, y):
    torch.autocast("cuda", dtype=torch.bfloat16)
    return loss_fn(model(x), y)
"""
    good = """\
import torch


def step(model, loss_fn, x, y):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return loss_fn(model(x), y)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",)
    words = ("autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per context."""
        fix = self.fix("Enter it: `with torch.autocast(...):` around the forward pass.")
        for call in view.calls(*AUTOCASTS):
            parent = view.parent(call)
            if isinstance(parent, ast.Expr):
                yield self.finding(view, call, "This autocast is made and dropped; it has no effect.", fix=fix)
            elif isinstance(parent, ast.Assign) and _is_unused(view, parent, call):
                name = ast.unparse(parent.targets[0])
                yield self.finding(view, call, f"Nothing enters {name}, so this autocast has no effect.", fix=fix)
        for hit in held(view, _idle):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Put the forward pass inside the region."))


def _is_unused(view: FileView, node: ast.Assign, call: ast.Call) -> bool:
    """Whether a local or private name is assigned and nothing in the file reads it."""
    target = node.targets[0] if len(node.targets) == 1 else None
    if not isinstance(target, ast.Name) or _is_exported(view, target, call):
        return False
    return not any(name.id == target.id and isinstance(name.ctx, ast.Load) for name in view.nodes(ast.Name))


def _is_exported(view: FileView, target: ast.Name, call: ast.Call) -> bool:
    """Whether another file may use a name of this module; a script with a loop of its own is imported by nobody."""
    if view.function(call) is not None:
        return False
    runs = any(view.function(loop) is None and view.class_of(loop) is None for loop in view.nodes(ast.For))
    return not runs


def _idle(trace: Trace) -> Iterator[Hit]:
    """Regions in which no op ever runs that autocast casts, while the forward pass runs outside of any."""
    busy = {id(event.node) for event in trace.of("region.busy")}
    outside = any(event.region.enabled is False and event.no_grad is not True for event in trace.of(*PRODUCTS))
    for event in trace.of("region.idle"):
        if id(event.node) not in busy and outside:
            yield Hit(event.node, "Nothing in this region is cast by autocast; the forward pass runs outside of it.")
