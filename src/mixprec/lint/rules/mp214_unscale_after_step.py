"""unscale_ comes after the step that needed it."""

from __future__ import annotations

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class UnscaleAfterStep(OrderRule):
    """`scaler.step(optimizer)` and then `scaler.unscale_(optimizer)` before `update`."""

    code = "MP214"
    name = "unscale-after-step"
    severity = Severity.ERROR
    title = "unscale_() is called after the step."
    why = "The step has unscaled the gradients itself; PyTorch raises when it is asked to do it again."
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
    scaler.unscale_(optimizer)
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
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = ("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",)
    kinds = ("unscale-after-step",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the late call."""
        call = conclusion.fault.anchor
        text = f"{view.text(call)} comes after the step{conclusion.when}, and raises."
        return self.finding(view, call, text, fix=self.fix("Move it before the step and before clipping."))
