"""What an expression is worth for the protocol. Everything that a call can do is in `_calls`."""

from __future__ import annotations

import abc
import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._values import (
    Const,
    Function,
    Opaque,
    Value,
)

if TYPE_CHECKING:
    from mixprec.lint._view import FileView
from mixprec.lint.protocol._tests import Tests

__all__ = ["Expressions"]


class Expressions(Tests):
    """Evaluates expressions on a path."""

    def __init__(self, view: FileView, machine: Machine) -> None:
        super().__init__(view, machine)
        self._table: dict[type[ast.AST], Callable[[Any, Path], Value]] = {
            ast.Attribute: self._attribute,
            ast.Await: lambda node, path: self.value(node.value, path),
            ast.BinOp: self._binary,
            ast.BoolOp: self._logic,
            ast.Call: self._call,
            ast.Compare: self._logic,
            ast.Constant: lambda node, path: Const(node.value),
            ast.Dict: self._dict,
            ast.DictComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.IfExp: self._if,
            ast.JoinedStr: self._text_of,
            ast.Lambda: lambda node, path: Function(node, self.file(path), path.chain),
            ast.List: self._items,
            ast.ListComp: self._comprehension,
            ast.Name: self._name,
            ast.NamedExpr: self._named,
            ast.SetComp: self._comprehension,
            ast.Starred: lambda node, path: self.value(node.value, path),
            ast.Subscript: self._subscript,
            ast.Tuple: self._items,
            ast.UnaryOp: self._unary,
        }

    def value(self, node: ast.expr, path: Path) -> Value:
        """What `node` is worth on `path`."""
        known = path.expanded.get(node)
        if known is not None:
            return known
        evaluate = self._table.get(type(node))
        return Opaque(f"?{id(node)}{self.place(path)}", bool(path.loops)) if evaluate is None else evaluate(node, path)

    @abc.abstractmethod
    def _call(self, node: ast.Call, path: Path) -> Value:
        """What a call is worth, carried out."""
