"""The optimizer steps inside the autocast region."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.lint.rules._writes import written_between
from mixprec.records import Finding, Severity


class WeightsChangedInRegion(OrderRule):
    """`optimizer.step()` or `scaler.step(optimizer)` in the body of `with autocast(…)`."""

    code = "MP088"
    name = "weights-changed-in-region"
    severity = Severity.WARNING
    title = "The optimizer steps inside the autocast region."
    why = (
        "Autocast keeps the low-precision copy of each weight until the region ends. A step inside the region changes "
        "the weights, and what runs after it in the same region still uses the old copies."
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
    scaler.scale(loss).backward()
    with torch.autocast("cuda", dtype=torch.float16):
        scaler.step(optimizer)
        scaler.update()
        print(model(x).mean())
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
    with torch.autocast("cuda", dtype=torch.float16):
        print(model(x).mean())
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.cpp",
    )
    kinds = ("step-in-region",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """Steps inside a region, and parameters written between two forward passes of one region."""
        yield from super().check(view)
        for node, module in written_between(view):
            text = f"This changes {module} between two calls of it in one region: the second one uses the old weights."
            yield self.finding(
                view, node, text, fix=self.fix("Let the region end before it, or pass cache_enabled=False.")
            )

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the step."""
        call = conclusion.fault.anchor
        text = f"{view.text(call)} changes the weights inside the autocast region{conclusion.when}."
        return self.finding(view, call, text, fix=self.fix("Let the region end before it."))
