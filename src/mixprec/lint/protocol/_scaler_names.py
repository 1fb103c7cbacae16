"""Under which names a file knows its gradient scalers: by what is done with them, and by where they come from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mixprec.lint._names import SCALERS
from mixprec.lint.protocol._last_name import assigned, last_name

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["scaler_names"]

Def = ast.FunctionDef | ast.AsyncFunctionDef
_SCALER = re.compile(
    r"^(grad|loss|amp|fp16|gradient)?_?scaler(_?\w{1,4})?$|GradScaler|^_grad_scaler$|grad_scaler", re.IGNORECASE
)


def scaler_names(view: FileView) -> set[str]:
    """The last names of everything in `view` that plays a scaler."""
    names = {name for name in _used_or_made(view) if name}
    copies = [(target, value) for target, value in assigned(view) if target]
    handed = list(_handed_over(view))
    while True:
        fresh = {target for target, value in copies if last_name(value) in names and _is_copy(value)}
        fresh |= {target for target, value in copies if isinstance(value, ast.Call) and _makes(view, value, names)}
        fresh |= {argument for argument, parameter in handed if parameter in names}
        if fresh <= names:
            return names
        names |= fresh


def _used_or_made(view: FileView) -> Iterator[str]:
    for call in view.nodes(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute):
            continue
        name = last_name(func.value)
        if func.attr == "unscale_" or (func.attr in ("get_scale", "scale", "step", "update") and _SCALER.search(name)):
            yield name
        elif func.attr == "backward" and isinstance(func.value, ast.Call) and last_name(func.value) == "scale":
            inner = func.value.func
            yield last_name(inner.value) if isinstance(inner, ast.Attribute) else ""
    for name, value in assigned(view):
        if isinstance(value, ast.Call) and view.dotted(value.func) in SCALERS:
            yield name


def _is_copy(value: ast.expr) -> bool:
    return isinstance(value, (ast.Attribute, ast.Name, ast.Subscript))


def _functions(view: FileView, name: str) -> Iterator[Def]:
    yield from (node for node in view.nodes(ast.FunctionDef) if node.name == name)


def _makes(view: FileView, call: ast.Call, names: set[str]) -> bool:
    """Whether a function of this file is called that gives back a scaler."""
    return any(_returns_scaler(view, function, names) for function in _functions(view, last_name(call.func)))


def _returns_scaler(view: FileView, function: Def, names: set[str]) -> bool:
    for node in view.nodes(ast.Return):
        if view.function(node) is function and node.value is not None:
            if isinstance(node.value, ast.Call) and view.dotted(node.value.func) in SCALERS:
                return True
            if isinstance(node.value, ast.Name) and node.value.id in names:
                return True
    return False


def _handed_over(view: FileView) -> Iterator[tuple[str, str]]:
    """(what is given, what the function calls it), for names that are given to functions of this file by place."""
    known = {node.name: node for node in view.nodes(ast.FunctionDef) if view.parent(node) is view.tree}
    for call in view.nodes(ast.Call):
        function = known.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if function is None:
            continue
        places = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        for given, name in zip(call.args, places, strict=False):
            if isinstance(given, (ast.Name, ast.Attribute)):
                yield last_name(given), name
