"""An optimizer that takes two half-steps per update is driven through one scaler step."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class TwoStepOptimizer(OrderRule):
    """`first_step` and `second_step` (SAM) on scaled gradients, or unscaled twice without an update between."""

    code = "MP025"
    name = "two-step-optimizer"
    severity = Severity.ERROR
    title = "A two-step optimizer (SAM) meets gradients that the scaler still owns."
    why = (
        "SAM climbs along the gradient, makes new gradients there and steps back. On scaled gradients it climbs "
        "thousands of times too far; unscaling for both half-steps without update() between raises."
    )
    bad = """\
import torch
from sam import SAM

model = torch.nn.Linear(8, 1).cuda()
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    optimizer.first_step(zero_grad=True)
    scaler.update()
"""
    good = """\
import torch
from sam import SAM

model = torch.nn.Linear(8, 1).cuda()
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.first_step(zero_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.second_step(zero_grad=True)
"""
    sources = (
        "https://github.com/davda54/sam",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("sam-on-scaled", "sam-unscaled-twice")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the half-step, or the second unscale_."""
        call = conclusion.fault.anchor
        if conclusion.kind == "sam-unscaled-twice":
            text = (
                f"{view.text(call)} is the second for this optimizer since the last update{conclusion.when}: it raises."
            )
        else:
            text = f"{view.text(call)} moves the weights along scaled gradients{conclusion.when}."
        fix = self.fix("Use bfloat16 without a scaler, or unscale_ before and update() after each half-step.")
        return self.finding(view, call, text, fix=fix)
