"""Under which other names a function may be called: what it is assigned to, handed over as, or kept in.

Names only, over the whole file: a name that may stand for a function which takes part in the protocol makes its calls
worth a look; what is really called there, the walk decides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mixprec.lint.protocol._last_name import last_name

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["Carried"]

Def = ast.FunctionDef | ast.AsyncFunctionDef
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TRANSPARENT = frozenset({"compile", "enumerate", "iter", "list", "partial", "partialmethod", "tuple", "wraps", "zip"})
_KEEPS = frozenset({"add", "append", "extend", "insert", "register", "setdefault", "update"})
_DISPLAYS = (ast.BoolOp, ast.Dict, ast.IfExp, ast.List, ast.Set, ast.Starred, ast.Tuple, ast.keyword)


class Carried:
    """Follows names of functions through a file. `indirect`: calls of what may be one of several functions."""

    def __init__(self, view: FileView) -> None:
        self.view = view
        self.indirect: set[ast.AST] = set()
        self._bound = _bound_names(view)
        self._stored = {node.attr for node in view.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store)}
        self._loads: dict[str, list[ast.AST]] = {}
        for name in view.nodes(ast.Name):
            if isinstance(name.ctx, ast.Load):
                self._loads.setdefault(name.id, []).append(name)
        for attribute in view.nodes(ast.Attribute):
            if isinstance(attribute.ctx, ast.Load):
                self._loads.setdefault(f".{attribute.attr}", []).append(attribute)
        self._seen: set[tuple[str, bool]] = set()
        self._classes: dict[str, list[ast.ClassDef]] = {}
        for cls in view.nodes(ast.ClassDef):
            self._classes.setdefault(cls.name, []).append(cls)
        self._fetched = [call for call in view.nodes(ast.Call) if _fetches(call)]

    def functions(self, names: Iterable[str]) -> Iterator[ast.AST]:
        """Where functions of these names are mentioned without being called."""
        for name in names:
            if (name, True) in self._seen:
                continue
            self._seen.add((name, True))
            if name not in self._bound:
                yield from self._mentions(name)
            if name not in self._stored:
                yield from (
                    node
                    for node in self._mentions(f".{name}")
                    if isinstance(node, ast.Attribute) and last_name(node.value) in ("self", "cls")
                )

            yield from (call for call in self._fetched if _may_fetch(call, name))

    def objects(self, names: Iterable[str]) -> Iterator[ast.AST]:
        """Where objects of these classes are made that can be called."""
        for name in names:
            if (name, True) not in self._seen and any(_is_callable(c) for c in self._classes.get(name, ())):
                self._seen.add((name, True))
                yield from (call for call in self.view.nodes(ast.Call) if last_name(call.func) == name)

    def names(self, names: Iterable[str]) -> Iterator[ast.AST]:
        """Where variables of these names are mentioned without being called."""
        for name in names:
            if (name, False) not in self._seen:
                self._seen.add((name, False))
                yield from self._mentions(name)
                yield from self._mentions(f".{name}")

    def _mentions(self, key: str) -> Iterator[ast.AST]:
        for node in self._loads.get(key, ()):
            parent = self.view.parent(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                continue
            if isinstance(parent, ast.Attribute) or (isinstance(parent, _DEFS) and node in parent.decorator_list):
                continue
            yield node

    def onward(self, node: ast.AST) -> Iterator[str]:
        """The names under which what `node` stands for may be called from here on."""
        parent = self.view.parent(node)
        while isinstance(parent, _DISPLAYS) or (isinstance(parent, ast.Subscript) and parent.value is node):
            node, parent = parent, self.view.parent(parent)
        if isinstance(parent, ast.Assign):
            yield from (name for target in parent.targets for name in _targets(target))
        elif isinstance(parent, (ast.AnnAssign, ast.NamedExpr)):
            yield from _targets(parent.target)
            if isinstance(parent, ast.NamedExpr):
                yield from self.onward(parent)
        elif isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and parent.iter is node:
            yield from _targets(parent.target)
        elif isinstance(parent, ast.Return):
            function = self.view.function(parent)
            if isinstance(function, _DEFS):
                yield function.name
        elif isinstance(parent, ast.Call):
            yield from self._into_call(node, parent)

    def _into_call(self, node: ast.AST, call: ast.Call) -> Iterator[str]:
        if node is call.func:
            self.indirect.add(call)
            return
        name = last_name(call.func)
        if name in _TRANSPARENT:
            yield from self.onward(call)
        if name in _KEEPS and isinstance(call.func, ast.Attribute):
            yield last_name(call.func.value)
        if isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg
        elif node in call.args:
            yield from self._parameters(name, call.args.index(node))

    def _parameters(self, name: str, place: int) -> Iterator[str]:
        """What the argument at `place` is called in the functions and classes of that name."""
        every_def: list[Def] = [*self.view.nodes(ast.FunctionDef), *self.view.nodes(ast.AsyncFunctionDef)]
        for function in every_def:
            cls = self.view.parent(function)
            method = isinstance(cls, ast.ClassDef)
            made = isinstance(cls, ast.ClassDef) and function.name == "__init__" and cls.name == name
            if function.name == name or made:
                spec = function.args
                every = [*spec.posonlyargs, *spec.args]
                yield from (arg.arg for arg in every[place + method : place + method + 1])
        for cls in self.view.nodes(ast.ClassDef):
            if cls.name == name:
                fields = [stmt.target for stmt in cls.body if isinstance(stmt, ast.AnnAssign)]
                yield from (last_name(field) for field in fields[place : place + 1])

    def wrappers(self, functions: Iterable[Def]) -> Iterator[str]:
        """What decorators of this file call the function that they are given."""
        for function in functions:
            for decorator in function.decorator_list:
                for wrapper in self._named(last_name(decorator)):
                    inner = [one for one in ast.walk(wrapper) if isinstance(one, _DEFS)]
                    yield from (arg.arg for one in inner for arg in one.args.args[:1] if arg.arg != "self")

    def _named(self, name: str) -> Iterator[Def]:
        every: list[Def] = [*self.view.nodes(ast.FunctionDef), *self.view.nodes(ast.AsyncFunctionDef)]
        return (function for function in every if function.name == name)


def _is_callable(cls: ast.ClassDef) -> bool:
    return any(isinstance(node, _DEFS) and node.name == "__call__" for node in cls.body)


def _fetches(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) > 1


def _may_fetch(call: ast.Call, name: str) -> bool:
    """Whether `getattr(object, text)` may give the method `name`."""
    given = call.args[1]
    if isinstance(given, ast.Constant):
        return given.value == name
    return last_name(call.args[0]) in ("self", "cls")


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        yield from (name for item in target.elts for name in _targets(item))
    elif last_name(target):
        yield last_name(target)


def _bound_names(view: FileView) -> set[str]:
    """Names that variables and parameters have anywhere in the file."""
    stored = {node.id for node in view.nodes(ast.Name) if isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in view.nodes(ast.arg)}
