"""float16 autocast without a scaler: small gradients become zero."""

from __future__ import annotations

import re

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity

_SCALES = re.compile(r"scaler|loss_scal|scale_loss|scaled_loss", re.IGNORECASE)


class Fp16WithoutScaler(OrderRule):
    """A loss from a float16 region goes to `backward` as it is, and nothing in the file scales."""

    code = "MP001"
    name = "fp16-without-scaler"
    severity = Severity.ERROR
    title = "float16 autocast is trained without a gradient scaler."
    why = (
        "Gradients below 6e-8 are zero in float16 and those below 6e-5 lose precision. Without a loss scale large "
        "parts of the gradients vanish, training slows down or stops, and nothing is raised."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
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
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://docs.pytorch.org/docs/stable/amp.html",
    )
    kinds = ("default-fp16-without-scaler", "fp16-without-scaler")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """An error where float16 is written down, a warning where it is CUDA's default."""
        if _SCALES.search(view.source):
            return None
        explicit = conclusion.kind == "fp16-without-scaler"
        what = "This region runs in float16" if explicit else "This region runs in float16, the default on CUDA,"
        return self.finding(
            view,
            conclusion.fault.anchor,
            f"{what} and its loss goes to backward() unscaled{conclusion.when}: small gradients become zero.",
            fix=self.fix("Scale the loss with a torch.amp.GradScaler, or use dtype=torch.bfloat16."),
            severity=Severity.ERROR if explicit else Severity.WARNING,
        )
