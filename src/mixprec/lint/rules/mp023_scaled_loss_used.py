"""The scaled loss is logged or added up as if it were the loss."""

from __future__ import annotations

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class ScaledLossUsed(OrderRule):
    """`loss = scaler.scale(loss)` and then `print(loss.item())`."""

    code = "MP023"
    name = "scaled-loss-used"
    severity = Severity.WARNING
    title = "The scaled loss is logged or added up as if it were the loss."
    why = (
        "scaler.scale returns the loss multiplied by the loss scale. A log of it is 65536 times too high, and jumps "
        "whenever the scale changes."
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
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(f"loss {loss.item():.4f}")
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
        print(f"loss {loss.item():.4f}")
"""
    fix_safety = FixSafety.PROMPT
    sources = ("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",)
    kinds = ("scaled-loss-shown",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is where the value is shown."""
        text = f"This is the loss multiplied by the loss scale{conclusion.when}."
        fix = self.fix("Keep the unscaled loss in a name of its own: scaler.scale(loss).backward().")
        return self.finding(view, conclusion.fault.anchor, text, fix=fix)
