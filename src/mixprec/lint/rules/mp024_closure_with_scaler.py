"""A closure is handed to the scaler's step."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class ClosureWithScaler(OrderRule):
    """`scaler.step(optimizer, closure)`, or a scaler that steps LBFGS."""

    code = "MP024"
    name = "closure-with-scaler"
    severity = Severity.ERROR
    title = "A closure is handed to scaler.step()."
    why = (
        "An optimizer with a closure makes new gradients inside its step, which the scaler has neither unscaled nor "
        "checked. As a keyword the closure raises; by position it is taken in silence, and the scaled loss is "
        "minimised."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.LBFGS(model.parameters())
scaler = torch.amp.GradScaler("cuda")


def closure():
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    return loss


for _ in range(10):
    scaler.step(optimizer, closure)
    scaler.update()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.LBFGS(model.parameters())


def closure():
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(10):
    optimizer.step(closure)
"""
    sources = (
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.LBFGS.html",
    )
    kinds = ("closure",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the step."""
        call = conclusion.fault.anchor
        text = f"{view.text(call)} makes gradients inside the step that the scaler never sees{conclusion.when}."
        return self.finding(
            view, call, text, fix=self.fix("Use bfloat16 without a scaler, or an optimizer without a closure.")
        )
