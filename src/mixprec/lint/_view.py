"""One file as the rules see it: its text, its tree, and what its names and constants stand for.

Everything is computed from the text alone, once, when it is first asked for. Nothing is imported or executed.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from mixprec.lint._constants import DTYPES, UNKNOWN, Dtype, evaluate
from mixprec.lint._edits import Editor
from mixprec.lint._names import alternatives, bindings
from mixprec.lint._owners import Owner, find_owners
from mixprec.lint._project import Project
from mixprec.records import Location

__all__ = ["FileView", "Scope"]

N = TypeVar("N", bound=ast.AST)
T = TypeVar("T")

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_LINE_END = re.compile(r"\r\n|\r|\n")  # what Python counts as the end of a line; str.splitlines counts more
_SHARED = frozenset({"ctx", "op", "ops"})
_DEEPEST = 12  # names that stand for names that stand for names: longer chains are cycles


class FileView:
    """A parsed file. Raises SyntaxError (or ValueError for a null byte) where the text is not Python."""

    def __init__(self, path: str, source: str, project: Project | None = None) -> None:
        self.path = path
        self.source = source
        self.project = project if project is not None else Project()
        self.tree = ast.parse(source)
        self.lines: tuple[str, ...] = tuple(_LINE_END.split(source))
        self.edit = Editor(self.lines)
        self._memo: dict[Callable[[FileView], Any], Any] = {}
        self._by_type: dict[type, list[ast.AST]] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        self._index()

    def _index(self) -> None:
        """Parents and kinds of all nodes, in source order; operators and contexts, which are shared, left out."""
        by_type, parents = self._by_type, self._parents
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            by_type.setdefault(type(node), []).append(node)
            children: list[ast.AST] = []
            for name in node._fields:
                if name in _SHARED:
                    continue
                value = getattr(node, name, None)
                if isinstance(value, list):
                    children += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST):
                    children.append(value)
            for child in children:
                parents[child] = node
            children.reverse()
            stack += children

    # --- the tree

    def nodes(self, *kinds: type[N]) -> list[N]:
        """Every node of these exact kinds; in source order within one kind."""
        found: list[Any] = []
        for kind in kinds:
            found.extend(self._by_type.get(kind, ()))
        return found

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What `node` stands in."""
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What `node` stands in, from the inside out."""
        current = self._parents.get(node)
        while current is not None:
            yield current
            current = self._parents.get(current)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node`, or `node` itself."""
        for candidate in (node, *self.ancestors(node)):
            if isinstance(candidate, ast.stmt):
                return candidate
        raise ValueError(f"{type(node).__name__} stands in no statement")

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        """The innermost function whose body holds `node`."""
        return next((a for a in self.ancestors(node) if isinstance(a, _FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class that holds `node`."""
        return next((a for a in self.ancestors(node) if isinstance(a, ast.ClassDef)), None)

    def loops(self, node: ast.AST) -> list[ast.For | ast.AsyncFor | ast.While]:
        """The loops around `node` within its function, from the inside out."""
        found: list[ast.For | ast.AsyncFor | ast.While] = []
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, (*_FUNCTIONS, ast.ClassDef)):
                break
            if isinstance(ancestor, _LOOPS):
                found.append(ancestor)
        return found

    def block(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The list of statements that `stmt` is one of."""
        parent = self._parents.get(stmt)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and stmt in block:
                return block
        return [stmt]

    def text(self, node: ast.AST) -> str:
        """The source text of `node`, as written."""
        line, column, end_line, end = self.edit.span(node)
        if line == end_line:
            return self.lines[line - 1][column - 1 : end - 1]
        first, last = self.lines[line - 1][column - 1 :], self.lines[end_line - 1][: end - 1]
        return "\n".join((first, *self.lines[line : end_line - 1], last))

    def location(self, node: ast.AST) -> Location:
        """Where `node` stands, for a finding."""
        line, column, end_line, end = self.edit.span(node)
        return Location(file=self.path, line=line, column=column, end_line=end_line, end_column=end)

    # --- names

    @functools.cached_property
    def imports(self) -> dict[str, str]:
        """Local name -> dotted name, over the whole file."""
        nodes: list[ast.Import | ast.ImportFrom] = [*self.nodes(ast.Import), *self.nodes(ast.ImportFrom)]
        return bindings(nodes)

    @functools.cached_property
    def _alternatives(self) -> dict[str, list[tuple[ast.stmt, str]]]:
        return alternatives([*self.nodes(ast.Import), *self.nodes(ast.ImportFrom)])

    def imported(self, node: ast.Name) -> str | None:
        """The dotted name that an import binds `node` to; of several, the one in the innermost branch around it.

        In `try: from torch.amp import autocast` with a fallback in `except ImportError:`, what either branch uses is
        what that branch imports. Outside of all branches the first stands.
        """
        several = self._alternatives.get(node.id)
        if several is None:
            return self.imports.get(node.id)
        around: ast.AST = node
        for ancestor in self.ancestors(node):
            if isinstance(around, ast.stmt):
                block = self.block(around)
                found = next((dotted for stmt, dotted in several if any(stmt is one for one in block)), None)
                if found is not None:
                    return found
            around = ancestor
        return self.imports.get(node.id)

    def dotted(self, node: ast.AST | None) -> str | None:
        """The dotted name that an expression stands for: `ac` after `from torch.cuda.amp import autocast as ac`.

        Follows imports, module-level aliases (`autocast = torch.cuda.amp.autocast`) and `getattr(torch, "half")`.
        A name that nothing binds to an import stays as it is written; None for what is no name at all.
        """
        return self._dotted(node, 0)

    def _dotted(self, node: ast.AST | None, depth: int) -> str | None:
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Attribute):
            value = self._dotted(node.value, depth + 1)
            return None if value is None else f"{value}.{node.attr}"
        if isinstance(node, ast.Name):
            return self._named(node, depth)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            return self._fetched(node.args, depth)
        return None

    def _fetched(self, args: list[ast.expr], depth: int) -> str | None:
        """What `getattr(*args)` fetches, where its second argument is a plain string."""
        if len(args) < 2 or not isinstance(args[1], ast.Constant) or not isinstance(args[1].value, str):
            return None
        value = self._dotted(args[0], depth + 1)
        return None if value is None else f"{value}.{args[1].value}"

    def _named(self, node: ast.Name, depth: int) -> str:
        if self._is_parameter(node):
            return node.id
        imported = self.imported(node)
        if imported is not None:
            return imported
        assigned = self.assignments(self.tree).get(node.id, ())
        if len(assigned) == 1 and isinstance(assigned[0], (ast.Attribute, ast.Name)):
            return self._dotted(assigned[0], depth + 1) or node.id
        return node.id

    def _is_parameter(self, node: ast.Name) -> bool:
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, _FUNCTIONS) and node.id in self._parameters(ancestor):
                return True
        return False

    def _parameters(self, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
        cache: dict[ast.AST, frozenset[str]] = self.memo(_parameter_cache)
        if function not in cache:
            spec = function.args
            every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
            cache[function] = frozenset(arg.arg for arg in every if arg is not None)
        return cache[function]

    def assignments(self, scope: ast.AST) -> dict[str, tuple[ast.expr | None, ...]]:
        """Name -> every value bound to it directly in `scope` (None where the value is no expression)."""
        cache: dict[ast.AST, dict[str, tuple[ast.expr | None, ...]]] = self.memo(_assignment_cache)
        if scope not in cache:
            cache[scope] = _assignments(scope)
        return cache[scope]

    # --- constants

    def constant(self, node: ast.AST | None) -> Any:
        """The Python value (or `Dtype`) that `node` has in every run, or UNKNOWN.

        Names count where they are assigned once, at module level or in the function around `node`. Arguments of
        functions and options of the command line stay open.
        """
        return UNKNOWN if not isinstance(node, ast.expr) else self._constant(node, 0)

    def _constant(self, node: ast.expr, depth: int) -> Any:
        return UNKNOWN if depth > _DEEPEST else evaluate(node, lambda name: self._lookup(name, depth))

    def _lookup(self, node: ast.expr, depth: int) -> Any:
        name = self.dotted(node)
        if name is not None and name.startswith("torch.") and name[6:] in DTYPES:
            return Dtype(DTYPES[name[6:]])
        if not isinstance(node, ast.Name):
            return UNKNOWN
        for scope in (*(a for a in self.ancestors(node) if isinstance(a, _FUNCTIONS)), self.tree):
            if isinstance(scope, _FUNCTIONS) and node.id in self._parameters(scope):
                return UNKNOWN
            values = self.assignments(scope).get(node.id, ())
            if values:
                value = values[0]
                return UNKNOWN if len(values) > 1 or value is None else self._constant(value, depth + 1)
        return UNKNOWN

    def dtype(self, node: ast.AST | None) -> str | None:
        """The dtype that `node` names in every run (`"float16"`), or None."""
        value = self.constant(node)
        return value.name if isinstance(value, Dtype) else None

    # --- calls

    def argument(self, call: ast.Call, position: int | None, keyword: str) -> ast.expr | None:
        """The argument at `position` (None: keyword only) or under `keyword`; None where it is not given."""
        for given in call.keywords:
            if given.arg == keyword:
                return given.value
        if position is None or position >= len(call.args):
            return None
        if any(isinstance(arg, ast.Starred) for arg in call.args[: position + 1]):
            return None
        return call.args[position]

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Every call of one of these dotted names."""
        for call in self.nodes(ast.Call):
            if self.dotted(call.func) in names:
                yield call

    # --- the surroundings

    @functools.cached_property
    def owners(self) -> frozenset[Owner]:
        """The frameworks that own backward or step in this file."""
        return find_owners(self)

    def memo(self, function: Callable[[FileView], T]) -> T:
        """`function(self)`, computed once per file: how rules share an analysis."""
        if function not in self._memo:
            self._memo[function] = function(self)
        result: T = self._memo[function]
        return result


def _parameter_cache(view: FileView) -> dict[ast.AST, frozenset[str]]:
    return {}


def _assignment_cache(view: FileView) -> dict[ast.AST, dict[str, tuple[ast.expr | None, ...]]]:
    return {}


def _assignments(scope: ast.AST) -> dict[str, tuple[ast.expr | None, ...]]:
    bound: dict[str, list[ast.expr | None]] = {}
    stack: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _bind(target, node.value, bound)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            if node.value is not None:
                _bind(node.target, node.value, bound)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor)):
            _bind(node.target, None, bound)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            _bind(node.optional_vars, None, bound)
        elif isinstance(node, ast.Global):
            for name in node.names:
                bound.setdefault(name, []).append(None)
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(node))
        elif isinstance(scope, ast.Module):
            stack.extend(n for n in ast.walk(node) if isinstance(n, ast.Global))
    return {name: tuple(values) for name, values in bound.items()}


def _bind(target: ast.expr, value: ast.expr | None, bound: dict[str, list[ast.expr | None]]) -> None:
    if isinstance(target, ast.Name):
        bound.setdefault(target.id, []).append(value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        paired = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for place, item in enumerate(target.elts):
            _bind(item, value.elts[place] if paired and isinstance(value, (ast.Tuple, ast.List)) else None, bound)
    elif isinstance(target, ast.Starred):
        _bind(target.value, None, bound)
