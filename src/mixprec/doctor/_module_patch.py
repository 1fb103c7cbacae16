"""The change of a script that puts modules into float32 from outside: lines after they are built, before they train.

For modules that no line of the script calls by itself: parts of an `nn.Sequential`, layers of a library's model.
Autocast is off in their forward, and 16-bit inputs are cast. The `forward` of each is bound to it, so that a copy of
the model (an average of its weights) computes with the copy's own weights.
"""

from __future__ import annotations

import ast
import itertools
import keyword
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mixprec.doctor._patches import Change, covers, edited
from mixprec.records import Edit

__all__ = ["module_changes"]

Block = Sequence[ast.stmt]


def module_changes(island: Mapping[str, Any], texts: Mapping[str, str], before: Sequence[str] = ()) -> Iterator[Change]:
    """A change for each variable that holds the modules. `island` is the fact that an island arm leaves behind,
    `texts` are the files that had another text in that run, in which the modules `before` were in float32 already.
    """
    if not island.get("modules") or "" in island["modules"] or any(part["nested"] for part in island["parts"]):
        return
    for holder in island["holders"]:
        change = _change(island, holder, texts, before)
        if change is not None:
            yield change


def _change(
    island: Mapping[str, Any], holder: Mapping[str, Any], texts: Mapping[str, str], earlier: Sequence[str]
) -> Change | None:
    file = Path(holder["file"])
    if not file.is_file():
        return None
    before = file.read_text(encoding="utf-8", errors="replace")
    text = next((text for path, text in texts.items() if Path(path).resolve() == file.resolve()), before)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    place = _place(tree, holder)
    lines = text.splitlines(keepends=True)
    if place is None or lines[place.lineno - 1][: place.col_offset].strip():
        return None
    indent = lines[place.lineno - 1][: place.col_offset]
    first = min((d.lineno for d in getattr(place, "decorator_list", ())), default=place.lineno)
    added = "".join(f"{indent}{line}\n" for line in _lines(island, holder, _names(tree)))
    after = edited(text, [Edit(first, 1, first, 1, added)])
    paths = [*earlier, *island["modules"]]
    names, one = " and ".join(f"`{path}`" for path in paths), len(paths) == 1
    about = f"{names} {'computes' if one else 'compute'} in float32, with autocast off in {'it' if one else 'them'}."
    return Change(about, holder["file"], before, after)


def _place(tree: ast.Module, holder: Mapping[str, Any]) -> ast.stmt | None:
    """The statement before which the modules exist: the outermost one around what runs now that does not build them."""
    scope = _scope(tree, holder)
    if scope is None:
        return None
    name, line = holder["name"].partition(".")[0], holder["line"]
    block: Block = scope.body
    while (statement := _covering(block, line)) is not None:
        if name not in set(_bound(statement)):
            return statement
        block = [part for part in ast.iter_child_nodes(statement) if isinstance(part, (ast.stmt, ast.ExceptHandler))]  # type: ignore[misc] # a handler has a body like a statement
    return None


def _scope(tree: ast.Module, holder: Mapping[str, Any]) -> ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | None:
    if holder["function"] == "<module>":
        return tree
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name == holder["function"]
        and covers(node, holder["line"])
    ]
    return max(functions, key=lambda node: node.lineno, default=None)


def _covering(block: Block, line: int) -> ast.stmt | None:
    return next((node for node in block if covers(node, line)), None)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that the statement gives a value to."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _lines(island: Mapping[str, Any], holder: Mapping[str, Any], taken: Container[str]) -> list[str]:
    """The statements, without indentation."""
    targets = [holder["name"] + _from_there(path) for path in holder["paths"]]
    names = itertools.chain(("part", "wide_part"), (f"part_{number}" for number in itertools.count(1)))
    name = next(name for name in names if name not in taken)
    device = island["parts"][0]["device"]
    body = [f'{name}.forward = torch.autocast("{device}", enabled=False)(type({name}).forward).__get__({name})']
    hook = _hook(island["parts"])
    body += [f"{name}.register_forward_pre_hook({hook})"] if hook else []
    imports = [] if holder["torch"] else ["import torch", ""]
    if len(targets) == 1:
        return [*imports, f"{name} = {targets[0]}  # computes in float32 from here on", *body]
    many = ", ".join(targets)
    loop = f"for {name} in ({many}):  # they compute in float32 from here on"
    if len(loop) > 100:
        loop = "\n".join(
            [f"for {name} in (  # they compute in float32 from here on", *(f"    {t}," for t in targets), "):"]
        )
    return [*imports, *loop.splitlines(), *(f"    {line}" for line in body)]


def _hook(parts: Sequence[Mapping[str, Any]]) -> str | None:
    """A forward pre-hook that casts what is in 16 bits; None where nothing is."""
    low = sorted({dtype for part in parts for dtype in part["low"]})
    keywords = any(part["keywords"] for part in parts)
    if not low and not keywords:
        return None
    if len(low) == 1 and not keywords:
        test = f'getattr(x, "dtype", None) == torch.{low[0]}'
    else:
        test = 'getattr(x, "dtype", None) in (torch.float16, torch.bfloat16)'
    all_alike = not keywords and not any(part["others"] for part in parts)
    cast = "x.float()" if all_alike else f"x.float() if {test} else x"
    if keywords:
        return f"lambda _, xs, ys: ([{cast} for x in xs], {{y: {cast} for y, x in ys.items()}}), with_kwargs=True"
    return f"lambda _, given: tuple({cast} for x in given)"


def _from_there(path: str) -> str:
    """`.net[3].wo` of the path `net.3.wo`."""
    parts = path.split(".") if path else []
    if all(part.isdigit() or (part.isidentifier() and not keyword.iskeyword(part)) for part in parts):
        return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)
    return f'.get_submodule("{path}")'
