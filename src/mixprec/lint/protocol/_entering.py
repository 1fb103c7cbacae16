"""A region is also entered through a stack of contexts, and made later by a partial that keeps its arguments."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mixprec.lint._names import AUTOCASTS
from mixprec.lint.protocol._last_name import last_name

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["bound_to", "enters_stack", "prepares_region"]


def enters_stack(view: FileView, call: ast.Call) -> bool:
    """Whether `call` is `stack.enter_context(…)` inside `with ExitStack() as stack:`, and nothing ends it earlier."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "enter_context" or not isinstance(func.value, ast.Name):
        return False
    return _opened_around(view, call, func.value.id) and not _ends_early(view, func.value.id)


def _opened_around(view: FileView, call: ast.Call, name: str) -> bool:
    function = view.function(call)
    return any(
        last_name(item.optional_vars) == name
        for outer in view.ancestors(call)
        if isinstance(outer, (ast.With, ast.AsyncWith)) and view.function(outer) is function
        for item in outer.items
    )


def _ends_early(view: FileView, name: str) -> bool:
    """Whether the file closes a stack of that name, or takes its contexts out of it."""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("close", "pop_all")
        and last_name(call.func.value) == name
        for call in view.nodes(ast.Call)
    )


def prepares_region(view: FileView, call: ast.Call) -> bool:
    """Whether `call` is `partial(torch.autocast, …)`."""
    tail = (view.dotted(call.func) or "").rpartition(".")[2]
    return tail == "partial" and bool(call.args) and view.dotted(call.args[0]) in AUTOCASTS


def bound_to(view: FileView, call: ast.Call) -> set[tuple[str, bool]]:
    """The names that the value of `call` is assigned to, and whether those are attributes."""
    parent = view.parent(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else ()
    return {(last_name(target), isinstance(target, ast.Attribute)) for target in targets}
