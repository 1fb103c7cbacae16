"""The learning-rate scheduler does not follow the steps that were applied."""

from __future__ import annotations

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class SchedulerIgnoresSkips(OrderRule):
    """`scheduler.step()` in every iteration of a scaled loop."""

    code = "MP020"
    name = "scheduler-ignores-skips"
    severity = Severity.WARNING
    title = "The learning-rate scheduler advances even when the scaler skipped the step."
    why = (
        "The scaler leaves out steps whose gradients overflow, several of them at the start. A scheduler that is "
        "stepped regardless runs ahead and uses up its warm-up; PyTorch warns once, when the very first step is "
        "skipped."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=100)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
"""
    good = """\
import torch

import mixprec

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=100)
scaler = mixprec.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if scaler.report(optimizer).applied:
        scheduler.step()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://github.com/pytorch/pytorch/issues/44511",
        "https://github.com/pytorch/pytorch/issues/55585",
        "https://docs.pytorch.org/docs/stable/optim.html",
    )
    kinds = ("schedule-unguarded",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the scheduler's step."""
        call = conclusion.fault.anchor
        text = f"{view.text(call)} also runs when the scaler has skipped the step{conclusion.when}."
        fix = self.fix("Step it only if scaler.get_scale() has not fallen since before scaler.update().")
        return self.finding(view, call, text, fix=fix)
