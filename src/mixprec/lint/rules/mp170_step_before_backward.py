"""The scaler unscales or steps before anything was scaled."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class StepBeforeBackward(OrderRule):
    """`scaler.step(optimizer)` at the head of the first iteration."""

    code = "MP170"
    name = "step-before-backward"
    severity = Severity.ERROR
    title = "The scaler unscales or steps before any backward pass."
    why = (
        'A scaler that has scaled nothing has no scale yet: PyTorch raises "Attempted unscale_ but _scale is None." '
        "The step belongs behind the backward pass of its window."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
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
    sources = (
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/facebookresearch/fairseq2/pull/1346",
    )
    kinds = ("nothing-scaled",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the first call."""
        call = conclusion.fault.anchor
        text = f"{view.text(call)} runs before anything was scaled{conclusion.when}: it raises in the first iteration."
        return self.finding(view, call, text, fix=self.fix("Move it behind scaler.scale(loss).backward()."))
