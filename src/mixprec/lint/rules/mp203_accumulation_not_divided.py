"""Accumulated losses are not divided by the number of micro-batches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol import facts, last_name
from mixprec.records import Finding, Severity

_ACCUMULATION = re.compile(r"accum|grad_acc|micro_?batch|update_freq|iter_size", re.IGNORECASE)

_SUMMED = re.compile(r"reduction\W{1,6}sum")


class AccumulationNotDivided(Rule):
    """A step once in N iterations, and N divides nothing in the whole file."""

    code = "MP203"
    name = "accumulation-not-divided"
    severity = Severity.WARNING
    title = "Accumulated losses are not divided by the number of micro-batches."
    why = (
        "The gradient of N accumulated mean losses is N times that of their mean: the learning rate and the clipping "
        "limit mean something else, and float16 gradients overflow N times sooner."
    )
    bad = """\
import torch

ACCUM = 4
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for i, (x, y) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    if (i + 1) % ACCUM == 0:
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
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        "https://huggingface.co/blog/gradient_accumulation",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """Silent where N is divided or multiplied by, handed to a call, or a loss is summed on purpose."""
        if view.owners or not view.memo(facts).core or _SUMMED.search(view.source):
            return
        for call in view.nodes(ast.Call):
            if last_name(call.func) != "backward" or not isinstance(call.func, ast.Attribute):
                continue
            name = _window(view, call)
            if name and not _counts(view, name) and not _divided(view, call.func.value):
                text = f"The step comes once in {name} iterations, but the loss is not divided by {name}."
                yield self.finding(view, call, text, fix=self.fix(f"Write scaler.scale(loss / {name}).backward()."))


def _window(view: FileView, backward: ast.Call) -> str:
    """The N of the test `… % N` that guards the step in the loop of `backward` but not `backward` itself."""
    loops = view.loops(backward)
    if not loops:
        return ""
    inner = _inner_loop(view, loops[0])
    if inner:
        return inner
    around = set(view.ancestors(backward))
    for test in ast.walk(loops[0]):
        if isinstance(test, ast.If) and test not in around and _steps(view, test):
            for node in ast.walk(test.test):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                    name = last_name(node.right)
                    if _ACCUMULATION.search(name):
                        return name
    return ""


def _inner_loop(view: FileView, loop: ast.AST) -> str:
    """The N of `for … in range(N)` around a backward, after which the step comes."""
    source = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(loop, ast.For) or not isinstance(source, ast.Call) or len(source.args) != 1:
        return ""
    name = last_name(source.args[0]) if view.dotted(source.func) == "range" else ""
    block = view.block(loop)
    after = block[block.index(loop) + 1 :] if loop in block else []
    return name if _ACCUMULATION.search(name) and not _steps(view, loop) and _steps(view, *after) else ""


def _steps(view: FileView, *tests: ast.stmt) -> bool:
    """Whether an optimizer is stepped in these statements, or in functions that they call."""
    known = view.memo(facts)
    bodies = [stmt for test in tests for stmt in (test.body if isinstance(test, (ast.For, ast.If)) else (test,))]
    calls = [node for stmt in bodies for node in ast.walk(stmt) if isinstance(node, ast.Call)]
    helpers = [function for call in calls for function in known.functions.get(last_name(call.func), ())]
    calls += [node for helper in helpers for node in ast.walk(helper) if isinstance(node, ast.Call)]
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "step"
        and (known.is_scaler(last_name(call.func.value)) or known.is_optimizer(last_name(call.func.value)))
        for call in calls
    )


def _divided(view: FileView, loss: ast.expr) -> bool:
    """Whether what is differentiated is divided by something else: the true size of a last window, say."""
    if any(isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)) for node in ast.walk(loss)):
        return True
    names = {node.id for node in ast.walk(loss) if isinstance(node, ast.Name)}
    again = [node for node in view.nodes(ast.AugAssign) if isinstance(node.op, (ast.Div, ast.Mult))]
    return any(last_name(node.target) in names for node in again) or any(
        isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, (ast.Div, ast.Mult))
        and last_name(target) in names
        and _mentions(node.value, last_name(target))
        for node in view.nodes(ast.Assign)
        for target in node.targets
    )


def _counts(view: FileView, name: str) -> bool:
    """Whether `name` takes part in any arithmetic other than the guard, or is handed to a call."""
    arithmetic: list[tuple[ast.operator, list[ast.expr]]] = [(n.op, [n.left, n.right]) for n in view.nodes(ast.BinOp)]
    arithmetic += [(node.op, [node.value]) for node in view.nodes(ast.AugAssign)]
    for op, operands in arithmetic:
        if isinstance(op, (ast.Div, ast.Mult, ast.FloorDiv)) and any(_mentions(o, name) for o in operands):
            return True
    return any(
        _mentions(arg, name) and last_name(call.func) not in ("print", "int", "max", "range", "add_argument")
        for call in view.nodes(ast.Call)
        for arg in (*call.args, *(keyword.value for keyword in call.keywords))
        if not isinstance(arg, (ast.BinOp, ast.Compare))
    )


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and last_name(n) == name for n in ast.walk(node))
