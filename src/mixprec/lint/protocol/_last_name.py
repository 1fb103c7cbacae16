"""Roles are told by the last name of a chain: `scaler` in `self.trainer.scaler`, `opts` in `opts[0]`."""

from __future__ import annotations

import ast

__all__ = ["last_name"]


def last_name(node: ast.AST | None) -> str:
    """The last name of a name or attribute chain, of a subscript or call of one; empty for anything else."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
