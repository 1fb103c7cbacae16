"""A gradient penalty is computed on gradients that carry the loss scale."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol import facts, last_name
from mixprec.records import Finding, Severity

_SHOWING = frozenset({"add_scalar", "debug", "format", "info", "log", "print", "set_postfix", "warning"})
_SCALE = re.compile(r"(^|_)scale$|^inv", re.IGNORECASE)


class PenaltyOnScaledGradients(Rule):
    """`autograd.grad(scaler.scale(loss), …, create_graph=True)` whose result is never divided by the scale."""

    code = "MP022"
    name = "penalty-on-scaled-gradients"
    severity = Severity.ERROR
    title = "A gradient penalty is computed on gradients that carry the loss scale."
    why = (
        "Gradients of a scaled loss are 65536 times too large, so their norm drowns the loss, or overflows. They are "
        "divided by scaler.get_scale() before the penalty is made of them."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


def penalty(loss):
    grads = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
    return sum(grad.pow(2).sum() for grad in grads).sqrt()


for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    penalised = loss + penalty(loss)
    scaler.scale(penalised).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


def penalty(loss):
    scaled = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
    grads = [grad / scaler.get_scale() for grad in scaled]
    return sum(grad.pow(2).sum() for grad in grads).sqrt()


for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    penalised = loss + penalty(loss)
    scaler.scale(penalised).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = ("https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-penalty",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """A function that reads the scale after the call is taken to divide by it."""
        for call in view.nodes(ast.Call):
            if last_name(call.func) != "grad" or not (view.dotted(call.func) or "").endswith("autograd.grad"):
                continue
            if view.constant(view.argument(call, 4, "create_graph")) is not True or not _is_scaled(view, call):
                continue
            if not _undone(view, call):
                text = "These gradients carry the loss scale, and nothing divides them by it."
                yield self.finding(view, call, text, fix=self.fix("Divide them by scaler.get_scale()."))


def _is_scaled(view: FileView, call: ast.Call) -> bool:
    """Whether the outputs are a scaled loss, directly or by a name."""
    outputs = view.argument(call, 0, "outputs")
    scope = view.function(call) or view.tree
    candidates: list[ast.AST] = [] if outputs is None else [outputs]
    if isinstance(outputs, ast.Name):
        candidates += [value for value in view.assignments(scope).get(outputs.id, ()) if value is not None]
    known = view.memo(facts)
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "scale"
        and known.is_scaler(last_name(node.func.value))
        for candidate in candidates
        for node in ast.walk(candidate)
    )


def _undone(view: FileView, call: ast.Call) -> bool:
    """Whether the function reads a scale: calls get_scale(), or has a name like inv_scale."""
    scope = view.function(call) or view.tree
    nodes = [node for node in ast.walk(scope) if isinstance(node, (ast.Attribute, ast.Name))]
    return any(
        _SCALE.search(last_name(node)) and not _is_method(view, node) and not _is_shown(view, node) for node in nodes
    )


def _is_shown(view: FileView, node: ast.AST) -> bool:
    """Whether the value is only printed or logged."""
    while (parent := view.parent(node)) is not None and not isinstance(node, ast.stmt):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and last_name(node.func) in _SHOWING):
            return True
        node = parent
    return False


def _is_method(view: FileView, node: ast.AST) -> bool:
    """Whether this is the `scale` of `scaler.scale(…)`."""
    parent = view.parent(node)
    return last_name(node) == "scale" and isinstance(parent, ast.Call) and parent.func is node
