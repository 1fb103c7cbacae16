"""Two optimizers are cleared in the loop, but only one is ever stepped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol import facts, last_name
from mixprec.lint.protocol._last_name import assigned
from mixprec.records import Finding, Severity

_NO_STEP = frozenset(
    {"enumerate", "id", "isinstance", "len", "list", "print", "repr", "tuple", "type", "unscale_", "zip"}
)
"""Functions that are given optimizers and do not step them."""


class OneOfTwoOptimizersStepped(Rule):
    """`a.zero_grad()`, `b.zero_grad()`, and then only `scaler.step(a)`."""

    code = "MP209"
    name = "one-of-two-optimizers-stepped"
    severity = Severity.WARNING
    title = "Two optimizers are cleared in the loop, but the scaler steps only one."
    why = "The parameters of the other one never move: its gradients are made and thrown away in every iteration."
    bad = """\
import torch

a, b = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 1).cuda()
opt_a = torch.optim.SGD(a.parameters(), lr=0.1)
opt_b = torch.optim.SGD(b.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    opt_a.zero_grad()
    opt_b.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(b(a(x)), y)
    scaler.scale(loss).backward()
    scaler.step(opt_a)
    scaler.update()
"""
    good = """\
import torch

a, b = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 1).cuda()
opt_a = torch.optim.SGD(a.parameters(), lr=0.1)
opt_b = torch.optim.SGD(b.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    opt_a.zero_grad()
    opt_b.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(b(a(x)), y)
    scaler.scale(loss).backward()
    scaler.step(opt_a)
    scaler.step(opt_b)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers",
    )
    words = ("GradScaler", "scaler")

    def check(self, view: FileView) -> Iterator[Finding]:
        """Only optimizers that are made in this file, are stepped nowhere in it, and go nowhere else."""
        known = view.memo(facts)
        if view.owners:
            return
        made = {name for name in known.optimizers if _is_made(view, name) and not _may_step(view, name)}
        for step in view.nodes(ast.Call):
            func = step.func
            if not isinstance(func, ast.Attribute) or func.attr != "step" or not known.is_scaler(last_name(func.value)):
                continue
            for name in sorted(made & _cleared_beside(view, step)):
                text = f"{name} is cleared in this loop, but no step is ever taken with it."
                fix = self.fix(f"Call {view.text(func.value)}.step({name}) as well, before update().")
                yield self.finding(view, step, text, fix=fix)


def _is_made(view: FileView, name: str) -> bool:
    """Whether an optimizer of PyTorch is put under `name` here."""
    return any(
        target == name and isinstance(value, ast.Call) and (view.dotted(value.func) or "").startswith("torch.optim.")
        for target, value in assigned(view)
    )


def _may_step(view: FileView, name: str) -> bool:
    """Whether `name` is stepped, or handed to something that may step it."""
    for call in view.nodes(ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr.endswith("step") and last_name(func.value) == name:
            return True
        schedules = "lr_scheduler" in (view.dotted(func) or "") or last_name(func) in _NO_STEP
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not schedules and any(name in _names(arg) for arg in given):
            return True
    held: list[ast.List | ast.Tuple] = [*view.nodes(ast.List), *view.nodes(ast.Tuple)]
    values: list[ast.expr] = [item for several in held for item in several.elts if isinstance(several.ctx, ast.Load)]
    values += [value for table in view.nodes(ast.Dict) for value in table.values]
    values += [node.value for node in view.nodes(ast.Return) if node.value is not None]
    return any(last_name(value) == name and not isinstance(value, ast.Call) for value in values)


def _names(node: ast.expr) -> set[str]:
    return {last_name(inside) for inside in ast.walk(node) if isinstance(inside, (ast.Name, ast.Attribute))}


def _cleared_beside(view: FileView, step: ast.Call) -> set[str]:
    """The optimizers that are cleared in the innermost loop around `step`, apart from the one that it steps."""
    loops = view.loops(step)
    if not loops:
        return set()
    cleared = {
        last_name(node.func.value)
        for node in ast.walk(loops[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "zero_grad"
    }
    return cleared - {last_name(arg) for arg in step.args}
