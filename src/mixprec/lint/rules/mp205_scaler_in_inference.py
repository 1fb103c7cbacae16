"""Where nothing is differentiated there is no gradient to scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, held
from mixprec.records import Finding, Severity

NO_GRAD = ("torch.no_grad", "torch.inference_mode")


class ScalerInInference(Rule):
    """`scaler.scale(loss)` under `torch.no_grad()`."""

    code = "MP205"
    name = "scaler-in-inference"
    severity = Severity.WARNING
    title = "A loss is scaled where gradients are off."
    why = "The scaled loss is never differentiated; what is logged or compared is 65536 times too large."
    bad = """\
import torch

model = torch.nn.Linear(8, 8)
scaler = torch.amp.GradScaler("cuda")
with torch.no_grad():
    loss = scaler.scale(model(torch.ones(1, 8)).mean())
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
scaler = torch.amp.GradScaler("cuda")
with torch.no_grad():
    loss = model(torch.ones(1, 8)).mean()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in held(view, lambda trace: _scales(trace, view)):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Use the loss as it is."))


def _scales(trace: Trace, view: FileView) -> Iterator[Hit]:
    """Calls that never run with gradients. A test around one may tell training from validation: it is left alone."""
    trained = {id(event.node) for event in trace.of("scaler.scale") if not event.no_grad}
    for event in trace.of("scaler.scale"):
        quiet = _is_quiet(event.node, view) or not _is_tested(event.node, view)
        if quiet and id(event.node) not in trained:
            yield Hit(event.node, "Gradients are off here, so there is nothing that the scale could protect.")


def _is_tested(node: ast.AST, view: FileView) -> bool:
    """Whether an `if` inside its function decides about a call."""
    for ancestor in view.ancestors(node):
        if isinstance(ancestor, (ast.If, ast.IfExp)):
            return True
        if isinstance(ancestor, ast.FunctionDef):
            return False
    return False


def _is_quiet(node: ast.AST, view: FileView) -> bool:
    """Whether a context or decorator inside the function around a call turns gradients off."""
    for ancestor in view.ancestors(node):
        contexts: list[ast.expr] = []
        if isinstance(ancestor, ast.With):
            contexts = [item.context_expr for item in ancestor.items]
        elif isinstance(ancestor, ast.FunctionDef):
            contexts = ancestor.decorator_list
        if any(isinstance(call, ast.Call) and view.dotted(call.func) in NO_GRAD for call in contexts):
            return True
        if isinstance(ancestor, ast.FunctionDef):
            return False
    return False
