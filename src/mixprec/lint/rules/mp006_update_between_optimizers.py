"""The scale is updated between the steps of two optimizers."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, call_statement, receiver, trace
from mixprec.records import Edit, Finding, Severity


class UpdateBetweenOptimizers(OrderRule):
    """`scaler.step(a)`, `scaler.update()`, `scaler.step(b)` in one iteration."""

    code = "MP006"
    name = "update-between-optimizers"
    severity = Severity.ERROR
    title = "scaler.update() stands between the steps of two optimizers."
    why = (
        "Gradients that were made before the update carry the old scale, and the second optimizer divides them by the "
        "new one. update() belongs once after all steps of an iteration."
    )
    bad = """\
import torch

a, b = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 1).cuda()
opt_a = torch.optim.SGD(a.parameters(), lr=0.1)
opt_b = torch.optim.SGD(b.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    opt_a.zero_grad()
    opt_b.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(b(a(x)), y)
    scaler.scale(loss).backward()
    scaler.step(opt_a)
    scaler.update()
    scaler.step(opt_b)
"""
    good = """\
import torch

a, b = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 1).cuda()
opt_a = torch.optim.SGD(a.parameters(), lr=0.1)
opt_b = torch.optim.SGD(b.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    opt_a.zero_grad()
    opt_b.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(b(a(x)), y)
    scaler.scale(loss).backward()
    scaler.step(opt_a)
    scaler.step(opt_b)
    scaler.update()
"""
    fix_safety = FixSafety.SAFE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers",
    )
    kinds = ("update-before-second-step", "update-between-steps")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """An error where the second gradients are older than the update; two whole cycles are only worth knowing."""
        update, step = conclusion.fault.anchor, conclusion.fault.others[0]
        second = view.text(step)
        fix = self.fix("Call update() once, after the last step.", *self._move(view, update, step))
        if conclusion.kind == "update-between-steps":
            text = f"{second} divides gradients of before this update by the new scale{conclusion.when}."
            return self.finding(view, update, text, fix=fix)
        if any(other.fault.anchor is update for other in view.memo(trace).of("updated-again")):
            text = (
                f"The scale changes here between two steps and again after {second}: it grows and falls twice as often."
            )
            return self.finding(view, update, text, fix=self.fix(fix.text), severity=Severity.INFO)
        text = f"The scale changes here, before {second}, and not after it{conclusion.when}."
        return self.finding(view, update, text, fix=fix, severity=Severity.WARNING)

    def _move(self, view: FileView, update: ast.AST, step: ast.AST) -> list[Edit | None]:
        """The update taken out and put behind the last step, where all stand in one block."""
        stmt, last = call_statement(view, update), call_statement(view, step)
        if stmt is None or last is None or view.block(stmt) is not view.block(last):
            return [None]
        later = [other for other in _after(view, step) if _is_step(view, other, receiver(view, update))]
        target = later[-1] if later else last
        if any(view.text(other) == view.text(stmt) for other in _after(view, target)):
            return [view.edit.delete(stmt)]
        lines = view.lines[stmt.lineno - 1 : stmt.end_lineno]
        return [view.edit.delete(stmt), view.edit.insert_after(target, "\n".join(line.strip() for line in lines))]


def _after(view: FileView, node: ast.AST) -> list[ast.stmt]:
    stmt = view.statement(node)
    block = view.block(stmt)
    return block[block.index(stmt) + 1 :] if stmt in block else []


def _is_step(view: FileView, stmt: ast.stmt, scaler: str) -> bool:
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(call, ast.Call) and receiver(view, call) == scaler and view.text(call.func).endswith(".step")
