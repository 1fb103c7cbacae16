"""Gradients are clipped, or their norm is read, while they still carry the loss scale."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, pair, same_block
from mixprec.records import Finding, Fix, Severity


class ClipBeforeUnscale(OrderRule):
    """`clip_grad_norm_` between `scale(loss).backward()` and `step` with no `unscale_` before it."""

    code = "MP002"
    name = "clip-before-unscale"
    severity = Severity.ERROR
    title = "Gradients are clipped while they still carry the loss scale."
    why = (
        "After scaler.scale(loss).backward() every gradient is multiplied by the loss scale, often 65536. A limit of "
        "1.0 then cuts them down to almost nothing and training crawls, in silence. scaler.unscale_(optimizer) divides "
        "them first; scaler.step notices and does not divide again."
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
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # as in the paper
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
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # as in the paper
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.SAFE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("clip-scaled",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """A warning where gradients are only measured."""
        how = dict(conclusion.fault.names)["how"]
        return self.finding(
            view,
            conclusion.fault.anchor,
            f"Gradients are {how} while they still carry the loss scale{conclusion.when}.",
            fix=self._fix(view, conclusion),
            severity=Severity.WARNING if how == "measured" else Severity.ERROR,
        )

    def _fix(self, view: FileView, conclusion: Conclusion) -> Fix:
        names = pair(view, conclusion.fault.anchor)
        if names is None:
            return self.fix("Call scaler.unscale_(optimizer) first.")
        text = f"Call {names.scaler}.unscale_({names.optimizer}) first."
        stmt = view.statement(conclusion.fault.anchor)
        beside = all(same_block(view, conclusion.fault.anchor, step) for step in names.steps)
        if not conclusion.always or not beside or not isinstance(stmt, (ast.Expr, ast.Assign)):
            return self.fix(text)
        return self.fix(text, view.edit.insert_before(stmt, f"{names.scaler}.unscale_({names.optimizer})"))
