"""The loss goes to backward unscaled although the scaler takes the step."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, pair, receiver
from mixprec.records import Edit, Finding, Severity


class MissingScale(OrderRule):
    """`loss.backward()` and then `scaler.step(optimizer)`."""

    code = "MP004"
    name = "missing-scale"
    severity = Severity.ERROR
    title = "backward() runs on an unscaled loss although the scaler takes the step."
    why = (
        "scaler.step divides the gradients by the loss scale. When the loss was never multiplied by it, updates are "
        "65536 times too small and learning all but stops. PyTorch raises only in the first iteration, and only where "
        "nothing has been scaled yet."
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
    loss.backward()
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
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("plain-backward", "plain-backward-too")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the backward call, not the step that reveals it."""
        call = conclusion.fault.anchor
        loss = receiver(view, call) or "the loss"
        also = "; other losses of the same step are scaled" if conclusion.kind == "plain-backward-too" else ""
        names = pair(view, call)
        scaler = names.scaler if names is not None else "scaler"
        text = f"{loss}.backward() is not scaled, but the scaler divides its gradients by the loss scale{also}"
        edit: Edit | None = None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and names is not None:
            edit = view.edit.replace(call.func.value, f"{scaler}.scale({loss})")
        fix = self.fix(f"Write {scaler}.scale({loss}).backward().", edit)
        return self.finding(view, call, f"{text}{conclusion.when}.", fix=fix)
