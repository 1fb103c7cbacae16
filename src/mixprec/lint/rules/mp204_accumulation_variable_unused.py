"""The loss is divided for accumulation, but every micro-batch takes a step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mixprec.lint._constants import UNKNOWN
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol import facts, last_name
from mixprec.records import Finding, Severity

_ACCUMULATION = re.compile(r"accum|grad_acc|micro_?batches|update_freq|iter_size", re.IGNORECASE)


class AccumulationVariableUnused(Rule):
    """`loss / ACCUM` and `step` in one loop, with no test between them."""

    code = "MP204"
    name = "accumulation-variable-unused"
    severity = Severity.WARNING
    title = "The loss is divided for accumulation, but every micro-batch takes a step."
    why = "Every step is then 1/N of what it should be, on N times smaller batches: nothing is accumulated."
    bad = """\
import torch

ACCUM = 4
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for i, (x, y) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss / ACCUM).backward()
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
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
    fix_safety = FixSafety.PROMPT
    sources = ("https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """Silent where the step stands under any test that is not around the division too."""
        known = view.memo(facts)
        if view.owners or not known.core:
            return
        for call in view.nodes(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr != "step":
                continue
            if not known.is_scaler(last_name(func.value)) and not known.is_optimizer(last_name(func.value)):
                continue
            name = _divided(view, call)
            if name:
                text = f"The loss is divided by {name}, but {view.text(call)} runs in every iteration."
                yield self.finding(view, call, text, fix=self.fix(f"Step only when (i + 1) % {name} == 0."))


def _divided(view: FileView, step: ast.Call) -> str:
    """The N that a loss is divided by in the innermost loop of `step`, where nothing guards the step."""
    loops = view.loops(step)
    if not loops or any(isinstance(a, ast.If) and loops[0] in view.ancestors(a) for a in view.ancestors(step)):
        return ""
    if any(isinstance(node, ast.Continue) for node in ast.walk(loops[0])):
        return ""
    inside = list(ast.walk(loops[0]))
    if not any(_is_backward(node) and view.loops(node)[:1] == loops[:1] for node in inside):
        return ""
    for node in inside:
        division = _division(node)
        if division is None or view.loops(node)[:1] != loops[:1]:
            continue
        loss, value = division
        constant = view.constant(value)
        several = constant is UNKNOWN or (isinstance(constant, (int, float)) and constant > 1)
        if _ACCUMULATION.search(last_name(value)) and "loss" in view.text(loss) and several:
            return last_name(value)
    return ""


def _division(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """What is divided by what, in `a / b` and `a /= b`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.left, node.right
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        return node.target, node.value
    return None


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "backward"
