"""The scaler steps an optimizer that has no gradients in this iteration."""

from __future__ import annotations

import ast

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class StepWithoutGradients(OrderRule):
    """`backward` stands under a test, `scaler.step` does not, and the gradients were cleared."""

    code = "MP143"
    name = "step-without-gradients"
    severity = Severity.WARNING
    title = "The scaler steps although no gradient was made."
    why = (
        'Without a gradient there is nothing to check, and PyTorch raises "No inf checks were recorded for this '
        'optimizer." Step only in iterations with a backward pass.'
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
    if y.numel() > 0:
        scaler.scale(loss).backward()
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
    if y.numel() > 0:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    sources = ("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",)
    kinds = ("no-gradient",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """Only where the test that leaves backward out is in the same block as the step."""
        call, changing = conclusion.fault.anchor, conclusion.changing
        if changing is None or changing.node is None or len(conclusion.conditions) != 1:
            return None
        test = next((a for a in view.ancestors(changing.node) if isinstance(a, ast.If)), None)
        if test is None or view.parent(test) is not view.parent(view.statement(call)):
            return None
        if not any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(test)):
            return None
        return self.finding(view, call, f"{view.text(call)} finds no gradients{conclusion.when}, and raises.")
