"""What is left of scores after their largest was subtracted is at most 0, whatever the name the largest was given."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["subtracts_maximum"]

_MAXIMA = ("amax", "logsumexp", "max")


def subtracts_maximum(node: ast.BinOp, view: FileView) -> bool:
    """`x - x.max(...)`, `x - torch.amax(x, ...)`, `x - m` with `m = x.amax(...)`, however detached or reshaped."""
    left = ast.unparse(node.left)
    if _is_maximum_of(left, node.right):
        return True
    name = _bare(node.right)
    scope = view.function(node) or view.tree
    bound = [] if name is None else view.memo(_bound).get((scope, name), [])
    return bool(bound) and all(_is_maximum_of(left, value) for value in bound)


def _is_maximum_of(subject: str, node: ast.expr) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _MAXIMA:
            given = ast.unparse(inner.args[0]) if inner.args else ""
            if subject in (ast.unparse(inner.func.value), given):
                return True
    return False


def _bare(node: ast.expr) -> str | None:
    """The name that is left when methods, attributes and indices are taken off: `m` of `m.detach()[..., None]`."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return None
    return node.id


def _bound(view: FileView) -> dict[tuple[ast.AST, str], list[ast.expr]]:
    """(scope, name) to what is assigned to it; where it is the first of several (`m, _ = ...`), what is taken apart."""
    found: dict[tuple[ast.AST, str], list[ast.expr]] = {}
    for assign in view.nodes(ast.Assign):
        for target in assign.targets:
            first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
            if isinstance(first, ast.Name):
                found.setdefault((view.function(assign) or view.tree, first.id), []).append(assign.value)
    return found
