"""What an option is where nobody sets it: the default of a command line, of a configuration, of a parameter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mixprec.lint._constants import UNKNOWN, evaluate

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["default", "usual"]

_OPTIONS = re.compile(
    r"(^|_)(args?|opts?|options?|cfg|conf|config|flags?|params?|hparams|ns|settings?)$", re.IGNORECASE
)
"""Last names of what holds options."""


def default(view: FileView, node: ast.expr) -> Any:
    """The value of `args.name`, `config["name"]`, a parameter or `self.name` made of one, where no caller sets it.

    UNKNOWN where the text does not say, or says more than one thing.
    """
    if isinstance(node, ast.Name):
        return _only(list(_parameters(view.function(node), node.id)))
    if isinstance(node, ast.Attribute) and _last(node.value) == "self":
        return _only(list(_members(view, node)))
    if isinstance(node, ast.Attribute) and _OPTIONS.search(_last(node.value)):
        return _only([*_arguments(view, node.attr), *_fields(view, node.attr)])
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        name = _last(node.value)
        return _only(list(_entries(view, node.slice.value, None if _OPTIONS.search(name) else name)))
    return UNKNOWN


def usual(view: FileView, node: ast.expr) -> Any:
    """The value of an expression of constants and options in a run that sets none; UNKNOWN where it has none."""

    def lookup(inner: ast.expr) -> Any:
        value = view.constant(inner)
        return default(view, inner) if value is UNKNOWN else value

    return evaluate(node, lookup)


def _only(values: list[ast.expr | None]) -> Any:
    return values[0].value if len(values) == 1 and isinstance(values[0], ast.Constant) else UNKNOWN


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _arguments(view: FileView, name: str) -> Iterator[ast.expr | None]:
    """The defaults that parsers of the command line give to the option `name`."""
    for call in view.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
            continue
        given = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        dest = view.constant(view.argument(call, None, "dest"))
        long = next((text for text in given if text.startswith("--")), given[0] if given else "")
        if name == (dest if isinstance(dest, str) else long.lstrip("-").replace("-", "_")):
            yield view.argument(call, None, "default")


def _fields(view: FileView, name: str) -> Iterator[ast.expr | None]:
    """The values that classes of options give to `name` in their bodies."""
    for cls in view.nodes(ast.ClassDef):
        for stmt in cls.body:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and any(getattr(t, "id", "") == name for t in targets):
                yield stmt.value


def _parameters(function: ast.AST | None, name: str) -> Iterator[ast.expr | None]:
    """The default of the parameter `name` of `function`."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return
    spec = function.args
    places = [*spec.posonlyargs, *spec.args]
    pairs = [*zip(reversed(places), reversed(spec.defaults), strict=False)]
    for arg, value in (*pairs, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)):
        if arg.arg == name:
            yield value


def _members(view: FileView, node: ast.Attribute) -> Iterator[ast.expr | None]:
    """What a class puts into `self.name`: a constant, or a parameter with its default."""
    cls = view.class_of(node)
    for assign in view.nodes(ast.Assign):
        for target in assign.targets:
            mine = isinstance(target, ast.Attribute) and target.attr == node.attr and _last(target.value) == "self"
            if not mine or view.class_of(assign) is not cls:
                continue
            if isinstance(assign.value, ast.Name):
                yield from _parameters(view.function(assign), assign.value.id)
            else:
                yield assign.value


def _entries(view: FileView, key: Any, name: str | None) -> Iterator[ast.expr | None]:
    """What dicts of the module hold under `key`: the one called `name`, or any."""
    for target, values in view.assignments(view.tree).items():
        for value in values:
            if isinstance(value, ast.Dict) and name in (None, target):
                for given, item in zip(value.keys, value.values, strict=True):
                    if isinstance(given, ast.Constant) and given.value == key:
                        yield item
