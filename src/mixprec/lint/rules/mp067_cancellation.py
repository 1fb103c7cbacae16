"""The mean of squares minus the square of the mean cancels: in 16 bits nothing or less than nothing is left."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity


class Cancellation(Rule):
    """`x.pow(2).mean() - x.mean().pow(2)` of 16-bit values."""

    code = "MP067"
    name = "cancellation"
    severity = Severity.WARNING
    title = "A variance is computed as E[x²] - E[x]² in 16 bits."
    why = "The two terms are almost equal, so the difference is rounding noise and can be negative; its root is NaN."
    bad = """\
import torch


def variance(x):
    x = x.bfloat16()
    return (x * x).mean(-1) - x.mean(-1) * x.mean(-1)
"""
    good = """\
import torch


def variance(x):
    x = x.bfloat16()
    return x.float().var(-1, unbiased=False)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per difference."""
        for hit in held(view, lambda trace: _differences(trace, view)):
            yield self.finding(
                view, hit.node, hit.message, fix=self.fix("Use x.float().var(...), which centres first.")
            )


def _differences(trace: Trace, view: FileView) -> Iterator[Hit]:
    for event in trace.of("sub"):
        node, result = event.node, event.result
        if not isinstance(node, ast.BinOp) or not isinstance(result, Tensor) or not result.low:
            continue
        first, second = _mean_of_square(node.left, view), _square_of_mean(node.right, view)
        if first is not None and first == second:
            yield Hit(node, f"E[{first}²] - E[{first}]² is computed in {spoken(result)}.")


def _mean_of_square(node: ast.expr, view: FileView) -> str | None:
    inner = _mean(node, view)
    squared = None if inner is None else _squared(_written(inner, view))
    return None if squared is None else ast.unparse(squared)


def _square_of_mean(node: ast.expr, view: FileView) -> str | None:
    inner = _squared(_written(node, view))
    mean = None if inner is None else _mean(inner, view)
    return None if mean is None else ast.unparse(mean)


def _written(node: ast.expr, view: FileView) -> ast.expr:
    """What a name was assigned, where that is one thing; another expression as it is."""
    if not isinstance(node, ast.Name):
        return node
    values = view.assignments(view.function(node) or view.tree).get(node.id, ())
    value = values[0] if len(values) == 1 else None
    return node if value is None or isinstance(value, ast.Name) else value


def _mean(node: ast.expr, view: FileView) -> ast.expr | None:
    """What the mean is taken of."""
    node = _written(node, view)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "mean":
        return None
    of_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    return (node.args[0] if node.args else None) if of_torch else node.func.value


def _squared(node: ast.expr) -> ast.expr | None:
    """What is squared."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value == 2:
            return node.left
        if isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right):
            return node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "square" and not node.args:
            return node.func.value
        if node.func.attr == "pow" and len(node.args) == 1 and ast.unparse(node.args[0]) == "2":
            return node.func.value
    return None
