"""unscale_ runs more than once before a step."""

from __future__ import annotations

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, call_statement
from mixprec.records import Finding, Severity


class UnscaleEveryMicroBatch(OrderRule):
    """`unscale_` twice for one step, or in every micro-batch of an accumulation window."""

    code = "MP007"
    name = "unscale-every-micro-batch"
    severity = Severity.ERROR
    title = "unscale_() runs more than once per step."
    why = (
        "The second call raises. Where a guard avoids that, later micro-batches add scaled gradients to unscaled ones. "
        "Gradients are unscaled once, when the window is complete."
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
    scaler.unscale_(optimizer)
    if (i + 1) % ACCUM == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
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
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("left-unscaled", "unscaled-every-batch", "unscaled-twice")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """A step that data made the script leave out is another cause."""
        call = conclusion.fault.anchor
        changing = conclusion.changing
        if conclusion.kind != "unscaled-twice" and changing is not None and not changing.window:
            return None
        if conclusion.kind == "unscaled-twice":
            stmt = call_statement(view, call)
            fix = self.fix("Remove this call.", None if stmt is None else view.edit.delete(stmt))
            return self.finding(
                view, call, f"{view.text(call)} is called twice for one step{conclusion.when}.", fix=fix
            )
        text = f"{view.text(call)} runs again before the step{conclusion.when}; once per step is right."
        return self.finding(view, call, text, fix=self.fix("Move it under the test that guards the step."))
