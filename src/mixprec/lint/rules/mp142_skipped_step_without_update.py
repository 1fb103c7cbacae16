"""A step is left out by hand, and the scaler is left in the middle of its protocol."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, trace
from mixprec.records import Finding, Severity


class SkippedStepWithoutUpdate(OrderRule):
    """A test that leaves out `step` and `update` after `unscale_`, or `step` alone where nothing was unscaled."""

    code = "MP142"
    name = "skipped-step-without-update"
    severity = Severity.ERROR
    title = "The script leaves out a step by hand and leaves the scaler half-way."
    why = (
        "After unscale_() the scaler waits for update(). Where a test leaves out both step() and update(), the next "
        "unscale_() raises, far from the cause. Without unscale_(), update() needs the step: it raises when there was "
        "none."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm > 100:
        print("skipped")
    else:
        scaler.step(optimizer)
        scaler.update()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm > 100:
        print("skipped")
    else:
        scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/Haian-Jin/LVSM/pull/19",
    )
    kinds = ("left-unscaled", "unscaled-every-batch", "update-without-step")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the test that leaves the step out."""
        changing = conclusion.changing
        if changing is None or changing.window or _never_updated(view, conclusion):
            return None
        place = _test(view, changing.node) or conclusion.fault.anchor
        if conclusion.kind == "update-without-step":
            text = f"{view.text(conclusion.fault.anchor)} raises in iterations without a step{conclusion.when}."
            fix = self.fix("Call unscale_() before the test, or leave out update() as well.")
        else:
            text = f"Neither step() nor update() follows unscale_(){conclusion.when}: the next unscale_() raises."
            fix = self.fix("Call update() in every iteration, and leave out only the step.")
        return self.finding(view, place, text, fix=fix)


def _never_updated(view: FileView, conclusion: Conclusion) -> bool:
    """Whether the function has no update at all, which is another cause."""
    scope = view.function(conclusion.fault.anchor)
    return any(view.function(other.fault.anchor) is scope for other in view.memo(trace).of("missing-update"))


def _test(view: FileView, node: ast.AST | None) -> ast.AST | None:
    """The test that `node` is part of."""
    if node is None:
        return None
    for candidate in (node, *view.ancestors(node)):
        parent = view.parent(candidate)
        if isinstance(parent, (ast.If, ast.IfExp, ast.While)) and parent.test is candidate:
            return candidate
        if isinstance(candidate, ast.stmt):
            break
    return node if view.parent(node) is not None else None
