"""A schedule begins with its first value only where the optimizer steps before the scheduler."""

from __future__ import annotations

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class SchedulerBeforeOptimizer(OrderRule):
    """`scheduler.step()` before `scaler.step(optimizer)` in the same iteration."""

    code = "MP213"
    name = "scheduler-before-optimizer"
    severity = Severity.WARNING
    title = "The learning-rate scheduler is stepped before the optimizer."
    why = "The first value of the schedule is never used. PyTorch warns, once, and takes a skipped first step for this."
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
    scheduler.step()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    good = """\
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
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
"""
    fix_safety = FixSafety.PROMPT
    sources = ("https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",)
    kinds = ("schedule-before-step",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the scheduler's step."""
        call = conclusion.fault.anchor
        text = f"{view.text(call)} comes before the optimizer's step{conclusion.when}: the first value is lost."
        return self.finding(view, call, text, fix=self.fix("Step the scheduler after the optimizer."))
