"""A loss scaler is enabled although training runs in bfloat16."""

from __future__ import annotations

import re

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity

_TRAVELS = re.compile(r"register_comm_hook|reduce_dtype")


class ScalerWithBf16(OrderRule):
    """An enabled `GradScaler` steps on gradients of a bfloat16 region."""

    code = "MP019"
    name = "scaler-with-bf16"
    severity = Severity.WARNING
    title = "A loss scaler is enabled although training runs in bfloat16."
    why = (
        "bfloat16 has the range of float32: there is nothing to scale. The scaler still reads every gradient, skips "
        "steps when its growing scale overflows, and lets schedules run ahead."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    )
    kinds = ("bf16-scaler",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is where the scaler is made. Gradients that travel in float16 are worth scaling all the same."""
        if _TRAVELS.search(view.source):
            return None
        text = f"This scaler is enabled while the loss comes from a bfloat16 region{conclusion.when}: it is idle work."
        fix = self.fix("Leave it out, or write enabled=(dtype == torch.float16).")
        return self.finding(view, conclusion.fault.anchor, text, fix=fix)
