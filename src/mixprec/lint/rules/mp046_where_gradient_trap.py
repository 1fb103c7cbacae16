"""`where` hides a NaN in the forward pass, and the backward pass multiplies it by 0 and keeps it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Trace, held
from mixprec.records import Finding, Severity

STEEP = ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "acos", "asin", "atanh")
NO_GRADIENT = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode")


class WhereGradientTrap(Rule):
    """`torch.where(x > 0, torch.log(x), 0)`."""

    code = "MP046"
    name = "where-gradient-trap"
    severity = Severity.WARNING
    title = "torch.where guards a logarithm or root of the very value that it tests."
    why = "Both branches are differentiated: 0 times the infinite slope of the branch that is not taken is NaN."
    bad = """\
import torch


def loss(model, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        p = model(x)
    value = torch.where(p > 0, torch.log(p), torch.zeros_like(p)).mean()
    value.backward()
"""
    good = """\
import torch


def loss(model, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        p = model(x)
    safe = torch.where(p > 0, p, torch.ones_like(p))
    value = torch.log(safe).mean()
    value.backward()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://github.com/pytorch/pytorch/issues/68425",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per where, in a file that runs backward."""
        if not any(isinstance(c.func, ast.Attribute) and c.func.attr == "backward" for c in view.nodes(ast.Call)):
            return
        cut = {id(hit.node) for hit in held(view, _of_cut_off)}
        for call in view.calls("torch.where"):
            if _has_no_gradient(view, call):
                continue
            test = _test(view, call.args[0]) if len(call.args) == 3 else None
            if test is None:
                continue
            tested = {ast.unparse(side) for side in (test.left, *test.comparators)}
            steep = next((text for branch in call.args[1:] for text in _steep(branch, cut) if text in tested), None)
            if steep is not None:
                message = f"The gradient of {steep} is NaN wherever the other branch is taken."
                advice = f"Replace {steep} by a harmless value first (where), then apply the function."
                yield self.finding(view, call, message, fix=self.fix(advice))


def _has_no_gradient(view: FileView, call: ast.Call) -> bool:
    """Whether a call stands under `no_grad` or `inference_mode`, as a region or as a decorator."""
    switches: list[ast.expr] = []
    for ancestor in view.ancestors(call):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            switches += [item.context_expr for item in ancestor.items]
        elif isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            switches += ancestor.decorator_list
    return any(view.dotted(node.func if isinstance(node, ast.Call) else node) in NO_GRADIENT for node in switches)


def _test(view: FileView, node: ast.expr) -> ast.Compare | None:
    """The comparison that decides, also where a name stands for it."""
    if isinstance(node, ast.Name):
        function = view.function(node)
        values = view.assignments(view.tree if function is None else function).get(node.id, ())
        node = values[0] if len(values) == 1 and values[0] is not None else node
    return node if isinstance(node, ast.Compare) else None


def _of_cut_off(trace: Trace) -> Iterator[Hit]:
    """Logarithms of what is learned and exactly 0 wherever a rectifier cut it off."""
    for event in trace.of("log", "log2", "log10"):
        tensor = event.tensor()
        if tensor is not None and {Tag.ZEROED, Tag.LEARNED} <= tensor.tags:
            yield Hit(event.node, "")


def _steep(node: ast.expr, cut: set[int]) -> Iterator[str]:
    """What a branch takes the logarithm or root of, or divides by; of a product where it is sure to reach 0."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield ast.unparse(node.right)
    if isinstance(node, (ast.BinOp, ast.UnaryOp)):
        yield from (text for inner in ast.walk(node) if id(inner) in cut for text in _argument(inner))
    yield from _argument(node)


def _argument(node: ast.AST) -> Iterator[str]:
    """What a logarithm or root is taken of."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in STEEP:
        return
    if isinstance(node.func.value, ast.Name) and node.func.value.id == "torch":
        yield from (ast.unparse(arg) for arg in node.args[:1])
    else:
        yield ast.unparse(node.func.value)
