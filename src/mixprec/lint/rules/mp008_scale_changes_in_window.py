"""The loss scale changes while gradients wait for their step."""

from __future__ import annotations

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class ScaleChangesInWindow(OrderRule):
    """`update()` in every micro-batch, or before the step it belongs to."""

    code = "MP008"
    name = "scale-changes-in-window"
    severity = Severity.ERROR
    title = "scaler.update() runs while scaled gradients wait for their step."
    why = (
        "Gradients of one step must carry one scale. An update between backward and step raises when nothing was "
        "checked yet; otherwise the gradients are divided by another scale than they were multiplied by, in silence."
    )
    bad = """\
import torch

ACCUM = 4
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for i, (x, y) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y) / ACCUM
    scaler.scale(loss).backward()
    if (i + 1) % ACCUM == 0:
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
"""
    good = """\
import torch

ACCUM = 4
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for i, (x, y) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y) / ACCUM
    scaler.scale(loss).backward()
    if (i + 1) % ACCUM == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("update-in-window", "update-without-step")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """A step that data made the script leave out is another cause."""
        changing = conclusion.changing
        if changing is not None and not changing.window:
            return None
        call = conclusion.fault.anchor
        text = f"{view.text(call)} changes the scale while scaled gradients wait for their step{conclusion.when}."
        return self.finding(view, call, text, fix=self.fix("Call update() once per step, right after it."))
