"""backward() is called on a value that has no graph."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class LossCutFromGraph(OrderRule):
    """The loss went through `.item()`, `.detach()`, NumPy or `torch.tensor(…)` before backward."""

    code = "MP144"
    name = "loss-cut-from-graph"
    severity = Severity.ERROR
    title = "The loss is cut off from the graph before backward()."
    why = (
        "A number that was read back, or a tensor made from numbers, knows nothing of the parameters. backward() "
        "raises, or reaches no parameter: the scaler then finds nothing to check, and without a scaler nothing is "
        "learnt, in silence."
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
    loss = loss.detach().requires_grad_()
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
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("detached",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the backward call."""
        how = dict(conclusion.fault.names)["how"]
        text = f"This loss was cut off from the graph by {how}{conclusion.when}: no parameter gets a gradient."
        fix = self.fix("Keep tensors to the end; collect several with torch.stack(losses).mean().")
        return self.finding(view, conclusion.fault.anchor, text, fix=fix)
