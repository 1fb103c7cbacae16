"""Autocast takes the device's default dtype although the script chooses one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._constants import Dtype
from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

_NAMES = frozenset({"bf16", "bfloat16", "float16", "fp16", "half"})


class AutocastWithoutDtype(Rule):
    """`autocast(device)` beside `GradScaler(enabled=dtype == "float16")`."""

    code = "MP147"
    name = "autocast-without-dtype"
    severity = Severity.WARNING
    title = "autocast() gets no dtype although the script chooses one."
    why = (
        "Without dtype= the region runs in the device's default, float16 on CUDA and bfloat16 on CPU. The scaler, "
        "which follows the script's choice, is then on under bfloat16 or off under float16."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=(args.dtype == "float16"))
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=(args.dtype == "float16"))
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=getattr(torch, args.dtype)):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",)
    words = ("GradScaler",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """Only where the scaler's own switch compares a dtype."""
        if "set_autocast" in view.source:
            return
        switches = [view.argument(call, None, "enabled") for call in view.calls(*SCALERS)]
        if not any(switch is not None and _compares_dtype(view, switch) for switch in switches):
            return
        for call in view.calls(*AUTOCASTS):
            given = view.argument(call, 1, "dtype") is not None or any(k.arg is None for k in call.keywords)
            if not given and view.constant(view.argument(call, None, "enabled")) is not False:
                text = "The scaler follows a dtype that this region does not get: it runs in the device's default."
                yield self.finding(view, call, text, fix=self.fix("Pass dtype= from the same variable."))


def _compares_dtype(view: FileView, node: ast.AST, depth: int = 0) -> bool:
    """Whether `node`, or the one value that its name is given, compares something with a 16-bit dtype."""
    if depth < 3 and isinstance(node, ast.Name):
        values = view.assignments(view.function(node) or view.tree).get(node.id, ())
        return len(values) == 1 and values[0] is not None and _compares_dtype(view, values[0], depth + 1)
    for inside in ast.walk(node):
        if isinstance(inside, ast.Compare):
            for side in (inside.left, *inside.comparators):
                value = view.constant(side)
                if (isinstance(value, Dtype) and value.name in _NAMES) or (isinstance(value, str) and value in _NAMES):
                    return True
    return False
