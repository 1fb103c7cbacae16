"""Changes to the script's own text that may cure what was found: the edits of a lint fix, or a float32 island.

An island here is code: one call of a module, one statement, or one function (`_module_patch` has those of modules).
Pure functions from text to text; whether a change helps is found out by running it.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mixprec.records import Edit, Finding, Location

__all__ = ["Change", "call_island", "code_islands", "covers", "edited", "in_code_of", "lint_change"]

OPAQUE = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Expressions whose parts may run not at all or often: nothing is moved out of them."""


@dataclass(frozen=True)
class Change:
    """Another text for one file, and in words what is different."""

    about: str
    file: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """In unified format, with the path as seen from here."""
        near = os.path.relpath(self.file)
        names = (self.file, self.file) if near.startswith("..") else (f"a/{near}", f"b/{near}")
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), *names
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def lint_change(finding: Finding) -> Change | None:
    """What the fix of a lint finding does; None where it has no edits."""
    if finding.fix is None or not finding.fix.edits or finding.location.file is None:
        return None
    before = _read(finding.location.file)
    after = edited(before, finding.fix.edits)
    return _change(finding.fix.text, finding.location.file, before, after)


def edited(text: str, edits: Sequence[Edit]) -> str:
    """`text` with non-overlapping edits made."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for edit in sorted(edits, key=lambda e: (e.start_line, e.start_column), reverse=True):
        begin = starts[min(edit.start_line, len(lines) + 1) - 1] + edit.start_column - 1
        end = starts[min(edit.end_line, len(lines) + 1) - 1] + edit.end_column - 1
        text = text[:begin] + edit.text + text[end:]
    return text


def call_island(location: Location) -> Change | None:
    """The call of the module `location.module` on that line, in float32; None where the line shows no such call."""
    return next(_islands(location, lambda text, tree, statement: _around_call(text, statement, location.module)), None)


def code_islands(location: Location) -> Iterator[Change]:
    """Float32 islands of code, the smaller one first: around the statement of that line, around its function."""
    line = location.line or 0
    yield from _islands(
        location,
        lambda text, tree, statement: (
            *_around_statement(text, tree, statement),
            *_around_function(text, tree, line),
        ),
    )


def in_code_of(location: Location, kind: str | None) -> bool:
    """Whether the line stands in the class `kind`, so that an op there is the module's own and not a part's."""
    found = _parsed(location)
    return found is not None and any(
        isinstance(node, ast.ClassDef) and node.name == kind and covers(node, location.line or 0)
        for node in ast.walk(found[1])
    )


Around = Callable[[str, ast.Module, ast.stmt], Iterable[tuple[str, str]]]


def _islands(location: Location, around: Around) -> Iterator[Change]:
    found = _parsed(location)
    if found is None or location.file is None:
        return
    text, tree = found
    statement = _statement(tree, location.line or 0)
    for about, after in around(text, tree, statement) if statement is not None else ():
        change = _change(about, location.file, text, after)
        if change is not None:
            yield change


def _parsed(location: Location) -> tuple[str, ast.Module] | None:
    if location.file is None or location.line is None or not Path(location.file).is_file():
        return None
    text = _read(location.file)
    try:
        return text, ast.parse(text)
    except SyntaxError:
        return None


def _change(about: str, file: str, before: str, after: str) -> Change | None:
    try:
        ast.parse(after)
    except SyntaxError:
        return None
    return Change(about, file, before, after) if after != before else None


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8", errors="replace")


def _statement(tree: ast.AST, line: int) -> ast.stmt | None:
    """The simple statement that covers `line`."""
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)
    found = [n for n in ast.walk(tree) if isinstance(n, kinds) and covers(n, line)]
    return min(found, key=lambda n: (n.end_lineno or n.lineno) - n.lineno, default=None)


def covers(node: ast.stmt, line: int) -> bool:
    """Whether `line` is one of the statement's."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _around_call(text: str, statement: ast.stmt, module: str | None) -> Iterator[tuple[str, str]]:
    """The call `self.wo(x)` of the module `layers.3.wo`, moved before the statement and into an island."""
    name = (module or "").rpartition(".")[2]
    calls = [n for n in _visible(statement) if isinstance(n, ast.Call) and getattr(n.func, "attr", None) == name]
    if not name or len(calls) != 1 or len(calls[0].args) != 1 or calls[0].keywords:
        return
    call, given = calls[0], calls[0].args[0]
    if isinstance(given, ast.Starred) or "wide" in text:
        return
    simple = isinstance(given, (ast.Name, ast.Call, ast.Attribute, ast.Subscript))
    source = ast.get_source_segment(text, given) or ""
    function = ast.get_source_segment(text, call.func) or ""
    indent = " " * statement.col_offset
    lines = [
        f"wide = {source if simple else f'({source})'}.float()",
        "with torch.autocast(wide.device.type, enabled=False):",
        f"    wide = {function}(wide)",
    ]
    after = edited(
        text,
        [
            Edit(statement.lineno, 1, statement.lineno, 1, "".join(f"{indent}{line}\n" for line in lines)),
            _replace(text, call, "wide"),
        ],
    )
    yield f"`{module}` computes in float32, with autocast off around its call.", after


def _visible(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run exactly once when the statement runs."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, OPAQUE):
            yield child
            yield from _visible(child)


def _around_statement(text: str, tree: ast.Module, statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """The statement inside an island, with its operands cast."""
    operands = list(_operands(tree, statement))
    if not operands:
        return
    edits = [_replace(text, name, f"{name.id}.float()") for name in operands]
    lines = text.splitlines(keepends=True)
    indent = " " * statement.col_offset
    body = edited(text, edits).splitlines(keepends=True)
    first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
    moved = [f"    {line}" if line.strip() else line for line in body[first:last]]
    head = f"{indent}with torch.autocast({operands[0].id}.device.type, enabled=False):\n"
    yield (
        "The statement computes in float32, with autocast off around it.",
        "".join([*lines[:first], head, *moved, *lines[last:]]),
    )


def _operands(tree: ast.Module, statement: ast.stmt) -> Iterator[ast.Name]:
    """Names in the statement that may be tensors: read, not called, no module, class or function of the file."""
    known = {alias.asname or alias.name.partition(".")[0] for alias in _imports(tree)}
    known |= {n.name for n in ast.walk(tree) if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    known |= {"self", "range", "len", "float", "int", "print", "torch", "F", "nn"}
    skip = {id(n.func) for n in ast.walk(statement) if isinstance(n, ast.Call)}
    skip |= {id(k.value) for n in ast.walk(statement) if isinstance(n, ast.Call) for k in n.keywords}
    skip |= {
        id(n.value)
        for n in ast.walk(statement)
        if isinstance(n, ast.Attribute) and n.attr in ("shape", "dtype", "device", "ndim", "numel", "size", "dim")
    }
    for node in _visible(statement):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and id(node) not in skip
            and node.id not in known
        ):
            yield node


def _imports(tree: ast.Module) -> Iterator[ast.alias]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from node.names


def _around_function(text: str, tree: ast.AST, line: int) -> Iterator[tuple[str, str]]:
    """The function that holds the line: autocast off in it, its first tensor argument cast."""
    holders = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and covers(n, line)]
    function = min(holders, key=lambda n: (n.end_lineno or n.lineno) - n.lineno, default=None)
    if function is None or not function.body:
        return
    names = [a.arg for a in function.args.args if a.arg != "self"]
    if not names:
        return
    start = function.body[1] if _is_docstring(function.body[0]) and len(function.body) > 1 else function.body[0]
    lines = text.splitlines(keepends=True)
    indent = " " * start.col_offset
    first, last = start.lineno - 1, function.end_lineno or start.lineno
    moved = [f"    {line}" if line.strip() else line for line in lines[first:last]]
    head = [f"{indent}with torch.autocast({names[0]}.device.type, enabled=False):\n"]
    head += [f"{indent}    {name} = {name}.float()\n" for name in names[:1]]
    yield (
        f"`{function.name}` computes in float32, with autocast off in it.",
        "".join([*lines[:first], *head, *moved, *lines[last:]]),
    )


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _replace(text: str, node: ast.expr, by: str) -> Edit:
    """An edit in place of a node, whose columns `ast` counts in bytes."""
    lines = text.splitlines()

    def column(line: int, offset: int) -> int:
        return len(lines[line - 1].encode("utf-8")[:offset].decode("utf-8", "replace")) + 1

    end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return Edit(node.lineno, column(node.lineno, node.col_offset), end_line, column(end_line, end), by)
