"""The scale is read after update() to undo the scaling of before it."""

from __future__ import annotations

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class ScaleReadAfterUpdate(OrderRule):
    """`scaled_loss / scaler.get_scale()` behind `scaler.update()`."""

    code = "MP201"
    name = "scale-read-after-update"
    severity = Severity.WARNING
    title = "get_scale() is read after update() to undo the scaling of before it."
    why = (
        "update() may have changed the scale: whatever was multiplied by the old one and is divided by the new one is "
        "off by the growth or backoff factor."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(scaled.item() / scaler.get_scale())
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(loss.item())
"""
    fix_safety = FixSafety.PROMPT
    sources = ("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",)
    kinds = ("undone-with-new-scale",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the division."""
        text = f"This was scaled before update() and is divided by the scale of after it{conclusion.when}."
        return self.finding(view, conclusion.fault.anchor, text, fix=self.fix("Keep loss.item() before scaling it."))
