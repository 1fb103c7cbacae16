"""A checkpoint of everything that a dict holds: `{name: part.state_dict() for name, part in registry.items()}`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._view import FileView
from mixprec.lint.protocol import facts, last_name

__all__ = ["incomplete"]

_DEEPEST = 3


def incomplete(view: FileView, saved: list[ast.Call]) -> Iterator[ast.Dict]:
    """Registries that hold a model and an optimizer and no scaler; `saved` are the calls of `state_dict`."""
    known, seen = view.memo(facts), list[ast.Dict]()
    for call in saved:
        source = _gone_through(view, call)
        held = _registry(view, source, 0) if source is not None else None
        if held is None or held in seen or not all(isinstance(key, ast.Constant) for key in held.keys):
            continue
        names = [last_name(value) for value in held.values if isinstance(value, (ast.Name, ast.Attribute))]
        optimizers = [name for name in names if known.is_optimizer(name)]
        others = [name for name in names if name not in optimizers and not known.is_scheduler(name)]
        if len(names) < len(held.values) or not optimizers or not others:
            continue
        if not any(known.is_scaler(name) or "scaler" in name.lower() for name in names):
            seen.append(held)
            yield held


def _gone_through(view: FileView, call: ast.Call) -> ast.expr | None:
    """`registry` where `call` is the `part.state_dict()` of a walk through `registry.items()`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    for ancestor in view.ancestors(call):
        walks: list[ast.comprehension | ast.For] = [ancestor] if isinstance(ancestor, ast.For) else []
        if isinstance(ancestor, ast.DictComp) and not ancestor.generators[0].ifs:
            walks = [ancestor.generators[0]]
        for walk in walks:
            pair, source = walk.target, walk.iter
            if not isinstance(source, ast.Call) or not isinstance(source.func, ast.Attribute):
                continue
            named = isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and source.func.attr == "items"
            if named and owner is not None and ast.unparse(pair).endswith(f", {ast.unparse(owner)})"):
                return source.func.value
    return None


def _registry(view: FileView, node: ast.expr, depth: int) -> ast.Dict | None:
    """The one dict that an expression is, and that nothing is put into later; of a parameter, what callers give."""
    name = last_name(node)
    if depth > _DEEPEST or name in view.memo(facts).grown or _is_written(view, name):
        return None
    function = view.function(node)
    if isinstance(node, ast.Name) and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        places = [arg.arg for arg in function.args.args]
        if name in places:
            kind = ast.Attribute if isinstance(view.parent(function), ast.ClassDef) else ast.Name
            named = (call for call in view.nodes(ast.Call) if isinstance(call.func, kind))
            calls = [call for call in named if last_name(call.func) == function.name]
            place = places.index(name) - (places[0] in ("self", "cls"))
            given = [view.argument(call, place, name) for call in calls]
            found = [None if one is None else _registry(view, one, depth + 1) for one in given]
            return found[0] if found and all(one is found[0] for one in found) else None
    if isinstance(node, ast.Name):
        scopes = [view.tree] if function is None else [function, view.tree]
        values = next((held for scope in scopes if (held := view.assignments(scope).get(name))), ())
    elif isinstance(node, ast.Attribute):
        values = tuple(
            stmt.value for stmt in view.nodes(ast.Assign) if ast.unparse(node) in map(ast.unparse, stmt.targets)
        )
    else:
        values = (node,)
    made = values[0] if len(values) == 1 else None
    return made if isinstance(made, ast.Dict) else None


def _is_written(view: FileView, name: str) -> bool:
    """Whether something is put under a key of the dict called `name`."""
    stores = (node for node in view.nodes(ast.Subscript) if isinstance(node.ctx, (ast.Store, ast.Del)))
    return any(last_name(node.value) == name for node in stores)
