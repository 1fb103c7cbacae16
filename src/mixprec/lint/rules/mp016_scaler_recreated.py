"""A new scaler is made in every epoch or step."""

from __future__ import annotations

import ast
import re

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule
from mixprec.records import Finding, Severity

_REPEATED = re.compile(r"epoch|(^|_)(train|training|optimi[sz]er?)_step|^train_batch|^step$", re.IGNORECASE)


class ScalerRecreated(OrderRule):
    """`GradScaler()` inside the loop over epochs or in a function that is called once per epoch."""

    code = "MP016"
    name = "scaler-recreated"
    severity = Severity.ERROR
    title = "A new GradScaler is made in every epoch or step."
    why = (
        "A scaler learns the right scale while training. A new one starts at 65536 again, and the first steps of every "
        "epoch are skipped until it has come down."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
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
for epoch in range(10):
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
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("scaler-made-in-function", "scaler-recreated")

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """An error where the loop is in sight; a warning where only the function's name tells that it is repeated."""
        made = conclusion.fault.anchor
        fix = self.fix("Create the scaler once, beside the optimizer, and hand it over.")
        if conclusion.kind == "scaler-recreated":
            text = f"A new scaler is made here again and again for the same optimizer{conclusion.when}."
            return self.finding(view, made, text, fix=fix)
        function = view.function(made)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not _is_repeated(function):
            return None
        text = f"Each call of {function.name} makes a new scaler for an optimizer that outlives it{conclusion.when}."
        return self.finding(view, made, text, fix=fix, severity=Severity.WARNING)


def _is_repeated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}
    return bool(_REPEATED.search(function.name)) or "epoch" in arguments
