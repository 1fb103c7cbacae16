"""The loss is scaled by one scaler and stepped by another."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class ScalersMixed(OrderRule):
    """`a.scale(loss).backward()` and then `b.step(optimizer)`."""

    code = "MP018"
    name = "scalers-mixed"
    severity = Severity.ERROR
    title = "The loss is scaled by one scaler and stepped by another."
    why = (
        "Each scaler divides by its own scale. Where the two differ, gradients come out multiplied by their ratio; "
        "where the second one has never scaled anything, it raises."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
other_scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    other_scaler.step(optimizer)
    other_scaler.update()
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
    sources = ("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",)
    kinds = ("two-scalers",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is where the second scaler comes in."""
        call = conclusion.fault.anchor
        text = f"{view.text(call)} belongs to another scaler than the one that scaled the loss{conclusion.when}."
        return self.finding(view, call, text, fix=self.fix("Use one scaler for scale, unscale_, step and update."))
