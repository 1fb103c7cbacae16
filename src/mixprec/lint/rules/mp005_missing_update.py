"""The scaler steps but is never updated."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, call_statement, facts, last_name, receiver
from mixprec.records import Edit, Finding, Severity


class MissingUpdate(OrderRule):
    """`scaler.step` with no `scaler.update()` before the next one."""

    code = "MP005"
    name = "missing-update"
    severity = Severity.ERROR
    title = "scaler.step() is not followed by scaler.update()."
    why = (
        "update() adjusts the loss scale and readies the scaler for the next iteration. Without it the second "
        "iteration raises, or, with steps taken by hand, the scale never adapts."
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
    scaler.step(optimizer)
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
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.SAFE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("missing-update",)

    def also_again(self, view: FileView, conclusion: Conclusion) -> bool:
        """Only where the scaler is this file's own and nothing else in it updates one."""
        return not conclusion.fault.outside and not _updates_elsewhere(view, conclusion)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the last step of the iteration, after which the update belongs."""
        call = conclusion.fault.anchor
        scaler = receiver(view, call) or "scaler"
        changing = conclusion.changing
        if changing is not None and changing.window:
            text = f"{view.text(call)} runs again before {scaler}.update(){conclusion.when}."
            return self.finding(view, call, text, fix=self.fix("Let step and update stand under the same test."))
        text = f"{view.text(call)} is not followed by {scaler}.update(){conclusion.when}."
        edit = _insertion(view, call, scaler) if conclusion.always else None
        return self.finding(view, call, text, fix=self.fix(f"Call {scaler}.update() after the step.", edit))


def _insertion(view: FileView, call: ast.AST, scaler: str) -> Edit | None:
    """`scaler.update()` after the last step of the block."""
    stmt = call_statement(view, call)
    if stmt is None:
        return None
    steps = [other for other in view.block(stmt) if _steps(view, other, scaler)]
    return view.edit.insert_after(steps[-1] if steps else stmt, f"{scaler}.update()")


def _steps(view: FileView, stmt: ast.stmt, scaler: str) -> bool:
    call = stmt.value if isinstance(stmt, (ast.Expr, ast.Assign)) else None
    return isinstance(call, ast.Call) and last_name(call.func) == "step" and receiver(view, call) == scaler


def _updates_elsewhere(view: FileView, conclusion: Conclusion) -> bool:
    """Whether a function that was not walked together with this one updates a scaler."""
    known = view.memo(facts)
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "update"
        and known.is_scaler(last_name(call.func.value))
        and (view.function(call) or view.tree) not in conclusion.within
        for call in view.nodes(ast.Call)
    )
