"""A norm of scaled gradients is right where it is divided by the scale afterwards, here or by the caller."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mixprec.lint.protocol._last_name import last_name

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["divisors"]

_COLLECTS = frozenset({"append", "extend"})
_DIVIDES = frozenset({"div", "div_", "true_divide"})
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEEPEST = 3


def divisors(view: FileView, node: ast.expr) -> list[ast.expr]:
    """What `node`, or what is computed from it, is divided by in its function and, if it is returned, by callers."""
    return list(_divisors(view, node, 0))


def _divisors(view: FileView, node: ast.expr, depth: int) -> Iterator[ast.expr]:
    function = view.function(node)
    scope = function if function is not None else view.tree
    names = _made_of(view, scope, node)
    for inner in ast.walk(scope):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div) and _holds(inner.left, node, names):
            yield inner.right
        elif isinstance(inner, ast.AugAssign) and isinstance(inner.op, ast.Div) and _holds(inner.target, node, names):
            yield inner.value
        elif _method(inner) in _DIVIDES and isinstance(inner, ast.Call) and _holds(inner.func, node, names):
            yield from inner.args[:1]
    if isinstance(function, _DEFS) and depth < _DEEPEST:
        returns = [inner for inner in ast.walk(function) if isinstance(inner, ast.Return) and inner.value is not None]
        if any(_holds(given.value, node, names) for given in returns if given.value is not None):
            for call in view.nodes(ast.Call):
                if last_name(call.func) == function.name and view.function(call) is not function:
                    yield from _divisors(view, call, depth + 1)


def _made_of(view: FileView, scope: ast.AST, node: ast.expr) -> set[str]:
    """The names in `scope` that hold what is computed from `node`."""
    names: set[str] = set()
    while True:
        more = {name for stmt in ast.walk(scope) for name in _bound(stmt, node, names)} - names
        if not more:
            return names
        names |= more


def _bound(stmt: ast.AST, node: ast.expr, names: set[str]) -> Iterator[str]:
    """The names that a statement puts into which something made of `node`, or of what `names` hold, goes."""
    targets: list[ast.expr] = []
    if isinstance(stmt, ast.Assign) and _holds(stmt.value, node, names):
        targets = stmt.targets
    elif isinstance(stmt, ast.AugAssign) and _holds(stmt.value, node, names):
        targets = [stmt.target]
    elif _method(stmt) in _COLLECTS and isinstance(stmt, ast.Call) and any(_holds(a, node, names) for a in stmt.args):
        targets = [stmt.func]
    for target in targets:
        yield from (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name))


def _method(node: ast.AST) -> str:
    """The name of the method that a call is of; empty for anything else."""
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _holds(outer: ast.AST, node: ast.expr, names: set[str]) -> bool:
    return any(inner is node or (isinstance(inner, ast.Name) and inner.id in names) for inner in ast.walk(outer))
