"""Roles are told by the last name of a chain: `scaler` in `self.trainer.scaler`, `opts` in `opts[0]`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["assigned", "is_super", "last_name"]


def last_name(node: ast.AST | None) -> str:
    """The last name of a name or attribute chain, of a subscript or call of one; empty for anything else."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def is_super(node: ast.AST) -> bool:
    """Whether this is `super()`, with or without arguments."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def assigned(view: FileView) -> Iterator[tuple[str, ast.expr]]:
    """Every assignment of the file: the last name of what is assigned to, and the value."""
    for node in view.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)):
                yield from ((last_name(t), v) for t, v in zip(target.elts, node.value.elts, strict=False))
            else:
                yield last_name(target), node.value
    for annotated in view.nodes(ast.AnnAssign):
        if annotated.value is not None:
            yield last_name(annotated.target), annotated.value
