"""backward() runs inside the autocast region."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, call_statement
from mixprec.records import Edit, Finding, Severity


class BackwardInsideAutocast(OrderRule):
    """A backward call in the body of `with autocast(…)`."""

    code = "MP083"
    name = "backward-inside-autocast"
    severity = Severity.WARNING
    title = "backward() runs inside the autocast region."
    why = (
        "Each backward op runs in the dtype that autocast chose for its forward op; a region around backward is not "
        "needed and not recommended: custom backward functions and hooks then run under autocast as well."
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
    fix_safety = FixSafety.SAFE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",)
    kinds = ("backward-in-region",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the backward call."""
        call = conclusion.fault.anchor
        edits = _dedented(view, call, conclusion.fault.others)
        text = f"backward() runs inside the autocast region{conclusion.when}."
        return self.finding(view, call, text, fix=self.fix("Let the region end before it.", *edits))


def _dedented(view: FileView, call: ast.AST, regions: tuple[ast.AST, ...]) -> tuple[Edit | None, ...]:
    """The statement moved behind the region, where it is the last one in it and the region holds nothing else."""
    stmt = call_statement(view, call)
    region = view.parent(stmt) if stmt is not None else None
    if stmt is None or not isinstance(region, (ast.With, ast.AsyncWith)) or len(region.items) != 1:
        return (None,)
    if region.items[0].context_expr not in regions or region.body[-1] is not stmt or len(region.body) < 2:
        return (None,)
    return view.edit.reindent([stmt], view.edit.indent(region)) or (None,)
