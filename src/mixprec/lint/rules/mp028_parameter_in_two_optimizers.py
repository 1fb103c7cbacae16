"""One parameter belongs to two optimizers that one scaler steps: its gradient is divided by the scale twice."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity


class ParameterInTwoOptimizers(OrderRule):
    """Two optimizers that were both given `trunk.parameters()`, stepped by one scaler after one backward."""

    code = "MP028"
    name = "parameter-in-two-optimizers"
    severity = Severity.ERROR
    title = "Two optimizers hold the same parameters, and one scaler unscales both."
    why = (
        "The scaler divides the gradients of each optimizer by the loss scale, in place. What both hold is divided "
        "twice, so the second optimizer hardly moves it, and nothing is raised."
    )
    bad = """\
import torch

trunk, left, right = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
first = torch.optim.SGD([*trunk.parameters(), *left.parameters()], lr=0.1)
second = torch.optim.SGD([*trunk.parameters(), *right.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    first.zero_grad()
    second.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        hidden = trunk(x)
        loss = torch.nn.functional.mse_loss(left(hidden) + right(hidden), y)
    scaler.scale(loss).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
"""
    good = """\
import torch

trunk, left, right = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
first = torch.optim.SGD([*trunk.parameters(), *left.parameters()], lr=0.1)
second = torch.optim.SGD(right.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    first.zero_grad()
    second.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        hidden = trunk(x)
        loss = torch.nn.functional.mse_loss(left(hidden) + right(hidden), y)
    scaler.scale(loss).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
"""
    sources = ("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",)
    kinds = ("parameter-twice",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is where the second optimizer is made."""
        made = conclusion.fault.anchor
        others = [node for node in conclusion.fault.others if view.parent(node) is not None]
        line = f" in line {getattr(others[0], 'lineno', 0)}" if others else ""
        shared = dict(conclusion.fault.names)["shared"]
        text = (
            f"The optimizer{line} holds {shared}.parameters() too{conclusion.when}: their gradients are unscaled twice."
        )
        return self.finding(view, made, text, fix=self.fix("Give each parameter to one optimizer."))
