"""What the scripts beside a configuration file do with precision, as far as one call says it literally."""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Iterator

__all__ = ["Calls", "calls_in"]

Calls = tuple[ast.Call, ...]


@functools.lru_cache(maxsize=64)
def calls_in(source: str, *names: str) -> Calls:
    """Every call in `source` whose function's last name is one of `names`; none where the text does not parse."""
    if not any(name in source for name in names):
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(_matching(tree, names))


def _matching(tree: ast.AST, names: tuple[str, ...]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
            if last in names:
                yield node
