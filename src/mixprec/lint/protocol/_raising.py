"""Which statements of a `try` may raise what one of its handlers takes: only a `raise` that is here is believed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mixprec.lint.protocol._last_name import last_name

if TYPE_CHECKING:
    from mixprec.lint.protocol._facts import Facts

__all__ = ["Raising", "raising"]

Raising = tuple[ast.expr, str, ast.ExceptHandler]
"""What raises, a call or a test; the exception's name; the handler that takes it."""

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_EVERY = ("BaseException", "Exception")


def raising(stmt: ast.stmt, handlers: list[ast.ExceptHandler], known: Facts) -> Raising | None:
    """The first exception that a simple statement, or a test in front of a `raise`, may raise."""
    for place, name in _raised(stmt, known):
        kinds = {name, *_bases(name, known), *_EVERY}
        for handler in handlers:
            if handler.type is None or kinds & _named(handler.type):
                return place, name, handler
    return None


def _raised(stmt: ast.stmt, known: Facts) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(stmt, ast.If):
        yield from ((stmt.test, name) for inner in stmt.body if isinstance(inner, ast.Raise) for name in _name(inner))
    elif isinstance(stmt, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)):
        for call in ast.walk(stmt):
            defined = known.functions.get(last_name(call.func), []) if isinstance(call, ast.Call) else []
            if isinstance(call, ast.Call) and len(defined) == 1:
                yield from ((call, name) for inner in _inside(defined[0]) for name in _name(inner))


def _inside(function: ast.AST) -> Iterator[ast.Raise]:
    """Every `raise` of a function itself that leaves it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Raise):
            yield child
        elif not isinstance(child, (*_DEFS, ast.Try)):
            yield from _inside(child)


def _name(node: ast.Raise) -> Iterator[str]:
    name = last_name(node.exc)
    if name[:1].isupper():
        yield name


def _named(node: ast.expr) -> set[str]:
    """The exceptions that a handler names."""
    return {last_name(one) for one in (node.elts if isinstance(node, ast.Tuple) else [node])}


def _bases(name: str, known: Facts) -> set[str]:
    """What an exception of this file derives from."""
    cls = known.classes.get(name)
    return {last_name(base) for base in cls.bases} if cls is not None else set()
