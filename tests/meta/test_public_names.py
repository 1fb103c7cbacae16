"""`__all__` is sorted, true and complete, and what it names is documented."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import mixprec

SOURCE = Path(__file__).parents[2] / "src" / "mixprec"
FILES = sorted(SOURCE.rglob("*.py"))
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def declared(tree: ast.Module) -> list[str] | None:
    """The names in a module's `__all__`, None where it has none."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def sort_key(name: str) -> tuple[int, list[int | str]]:
    """Constants, then classes, then the rest; numbers inside names count as numbers."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def defined(tree: ast.Module) -> set[str]:
    """Public functions and classes that a module defines at its top level."""
    return {node.name for node in tree.body if isinstance(node, DEFINITIONS) and not node.name.startswith("_")}


def bound(tree: ast.Module) -> set[str]:
    """Every name that a module's top level binds, imports included."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (*DEFINITIONS,)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def faults(tree: ast.Module) -> list[str]:
    """What is wrong with a module's `__all__` and with the docstrings of what it names."""
    names = declared(tree)
    if names is None:
        return []
    public = [node for node in tree.body if isinstance(node, DEFINITIONS) and node.name in names]
    methods = [
        (f"{owner.name}.{node.name}", node)
        for owner in public
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, DEFINITIONS) and not node.name.startswith("_")
    ]
    overloads = [name for name, node in methods if any("overload" in ast.unparse(d) for d in node.decorator_list)]
    documented = [(node.name, node) for node in public] + [m for m in methods if m[0] not in overloads]
    return [
        *(["__all__ is not sorted"] if names != sorted(names, key=sort_key) else []),
        *(f"{name} is missing from __all__" for name in sorted(defined(tree) - set(names))),
        *(f"{name} is in __all__ and not defined" for name in sorted(set(names) - bound(tree))),
        *(f"{name} has no docstring" for name, node in documented if not ast.get_docstring(node)),
    ]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_all_is_sorted_complete_and_documented(path):
    """Every public function and class of a module with `__all__` is in it, in order, with a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))

    assert faults(tree) == []
    assert ast.get_docstring(tree), "the module does not open with the truth that it maintains"


def test_a_planted_fault_is_caught():
    """The check can fail: unsorted, missing, absent and undocumented names are each reported."""
    planted = ast.parse('__all__ = ["b", "a", "gone"]\n\ndef a(): pass\n\ndef b():\n    "B."\n\ndef c(): pass\n')

    assert faults(planted) == [
        "__all__ is not sorted",
        "c is missing from __all__",
        "gone is in __all__ and not defined",
        "a has no docstring",
    ]


@pytest.mark.parametrize("name", mixprec.__all__)
def test_a_lazy_name_is_what_its_home_defines(name):
    """`mixprec.NAME` is the very object of the module that defines it, and is documented."""
    value = getattr(mixprec, name)

    if name in mixprec._HOME:
        assert value is getattr(importlib.import_module(mixprec._HOME[name]), name)
    assert value.__doc__


def test_an_unknown_name_says_which_exist():
    """The nearest rejection: a name that is not public raises AttributeError and lists those that are."""
    with pytest.raises(AttributeError, match=r"no attribute 'Precison'; public names: GradScaler, Policy, Precision"):
        _ = mixprec.Precison


def test_dir_lists_every_public_name():
    """`dir(mixprec)` shows the lazy names before they are used."""
    assert set(mixprec.__all__) <= set(dir(mixprec))
