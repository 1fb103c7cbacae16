"""A model that trains in autocast and is evaluated without it is measured in another precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

NO_GRAD = ("torch.no_grad", "torch.inference_mode")


class EvaluationInOtherPrecision(Rule):
    """`with torch.autocast(...)` around the training pass, and none around the evaluation."""

    code = "MP207"
    name = "evaluation-in-other-precision"
    severity = Severity.INFO
    title = "A model is trained inside autocast and evaluated outside it."
    why = "The evaluation is slower, uses more memory, and does not show errors that only 16 bits have."
    bad = """\
import torch

model = torch.nn.Linear(8, 8)


def train(x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x).float().mean()


@torch.no_grad()
def evaluate(x):
    return model(x).float().mean()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)


def train(x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x).float().mean()


@torch.no_grad()
def evaluate(x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x).float().mean()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",)
    words = ("autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per model, at its first evaluation without autocast."""
        trained: set[str] = set()
        evaluated: dict[str, ast.Call] = {}
        for call in view.nodes(ast.Call):
            name = ast.unparse(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else ""
            if not name.rpartition(".")[2].endswith(("model", "net", "network")):
                continue
            region, quiet = _is_inside(view, call, AUTOCASTS), _is_inside(view, call, NO_GRAD)
            if region and not quiet:
                trained.add(name)
            elif quiet and not region:
                evaluated.setdefault(name, call)
        for name in sorted(trained & set(evaluated)):
            fix = self.fix("Enter the same autocast here, unless a float32 measurement is meant.")
            yield self.finding(
                view, evaluated[name], f"{name} is trained inside autocast and evaluated without.", fix=fix
            )


def _is_inside(view: FileView, node: ast.AST, names: frozenset[str] | tuple[str, ...]) -> bool:
    """Whether a context or a decorator of the function around it bears one of these names."""
    for ancestor in view.ancestors(node):
        if isinstance(ancestor, ast.With) and any(_named(view, item.context_expr, names) for item in ancestor.items):
            return True
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any(_named(view, decorator, names) for decorator in ancestor.decorator_list)
    return False


def _named(view: FileView, node: ast.expr, names: frozenset[str] | tuple[str, ...]) -> bool:
    """Whether an expression, or any part of a choice, calls one of the names; a variable may hold anything."""
    if isinstance(node, ast.Name):
        return names is AUTOCASTS and view.dotted(node) not in NO_GRAD
    return any(isinstance(inner, ast.Call) and view.dotted(inner.func) in names for inner in ast.walk(node))
