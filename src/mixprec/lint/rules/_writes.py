"""Parameters that are written in place: `for p in model.parameters(): p.copy_(…)`, here or in a helper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._view import FileView
from mixprec.lint.protocol import facts, last_name
from mixprec.lint.rules.mp061_updates_round_away import freezes

__all__ = ["written_between"]

_WRITES = frozenset({"add_", "copy_", "div_", "fill_", "lerp_", "mul_", "normal_", "sub_", "uniform_", "zero_"})


def written_between(view: FileView) -> Iterator[tuple[ast.stmt, str]]:
    """(statement, module) where a region calls the module, then writes its parameters, then calls it again."""
    if freezes(view):
        return  # frozen parameters are not cached
    for region in view.nodes(ast.With):
        if any(_caches(view, item.context_expr) for item in region.items):
            for place, stmt in enumerate(region.body):
                before, after = region.body[:place], region.body[place + 1 :]
                for module in sorted(_written(view, stmt)):
                    if _called(view, before, module) and _called(view, after, module):
                        yield stmt, module


def _caches(view: FileView, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or view.dotted(node.func) not in AUTOCASTS:
        return False
    given = (view.argument(node, None, "enabled"), view.argument(node, None, "cache_enabled"))
    return all(argument is None or view.constant(argument) is True for argument in given)


def _called(view: FileView, body: list[ast.stmt], module: str) -> bool:
    """Whether `module` is called in `body` itself, with gradients on."""
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == module
        for stmt in body
        if isinstance(stmt, (ast.Assign, ast.AugAssign, ast.Expr))
        for node in ast.walk(stmt)
    )


def _written(view: FileView, stmt: ast.stmt) -> set[str]:
    """The modules whose parameters a statement writes, as the text there writes them."""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return set(_loops(stmt)) if isinstance(stmt, (ast.For, ast.With)) else set()
    if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict":
        return {ast.unparse(call.func.value)}
    defined = view.memo(facts).functions.get(last_name(call.func), [])
    function = defined[0] if len(defined) == 1 else None
    if function is None:
        return set()
    if isinstance(call.func, ast.Attribute):
        return {module for written in _loops(function) if (module := _of_object(view, call.func.value, written))}
    given = dict(zip((arg.arg for arg in function.args.args), map(ast.unparse, call.args), strict=False))
    own = {arg.arg for arg in function.args.args} | set(view.assignments(function))
    return {given.get(module, module) for module in _loops(function) if module in given or module not in own}


def _of_object(view: FileView, owner: ast.expr, written: str) -> str | None:
    """What `self.net` in a method is outside: the argument that the constructor of `owner` put there."""
    values = view.assignments(view.function(owner) or view.tree).get(ast.unparse(owner), ())
    made = values[0] if len(values) == 1 else None
    cls = view.memo(facts).classes.get(last_name(made.func)) if isinstance(made, ast.Call) else None
    init = next((n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None) if cls else None
    if init is None or not isinstance(made, ast.Call) or not written.startswith("self."):
        return None
    given = dict(zip((arg.arg for arg in init.args.args[1:]), map(ast.unparse, made.args), strict=False))
    given |= {keyword.arg: ast.unparse(keyword.value) for keyword in made.keywords if keyword.arg is not None}
    for stmt in init.body:
        for target, value in _pairs(stmt):
            if ast.unparse(target) == written:
                return given.get(ast.unparse(value))
    return None


def _pairs(stmt: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of an assignment, each of several for itself: `self.a, self.b = a, b`."""
    if not isinstance(stmt, ast.Assign):
        return
    for target in stmt.targets:
        if isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
            yield from zip(target.elts, stmt.value.elts, strict=False)
        else:
            yield target, stmt.value


def _loops(node: ast.AST) -> Iterator[str]:
    """The modules over whose parameters loops in `node` run, writing to them."""
    for loop in ast.walk(node):
        if not isinstance(loop, ast.For):
            continue
        for name, module in _over(loop.target, loop.iter):
            if any(_writes(inner, name) for inner in ast.walk(loop)):
                yield module


def _over(target: ast.expr, source: ast.expr) -> Iterator[tuple[str, str]]:
    """(loop variable, module) for `p` over `module.parameters()`, with or without its name, alone or in a zip."""
    if not isinstance(source, ast.Call):
        return
    if isinstance(source.func, ast.Attribute) and source.func.attr == "named_parameters":
        if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[1], ast.Name):
            yield target.elts[1].id, ast.unparse(source.func.value)
    elif isinstance(source.func, ast.Attribute) and source.func.attr == "parameters" and isinstance(target, ast.Name):
        yield target.id, ast.unparse(source.func.value)
    elif last_name(source.func) == "zip" and isinstance(target, ast.Tuple):
        for item, argument in zip(target.elts, source.args, strict=False):
            yield from _over(item, argument)


def _writes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(_is_data_of(target, name) for target in node.targets)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _WRITES:
        return False
    return _is_data_of(node.func.value, name) or (isinstance(node.func.value, ast.Name) and node.func.value.id == name)


def _is_data_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "data" and ast.unparse(node.value) == name
