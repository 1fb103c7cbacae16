"""`__all__` is sorted, true and complete, and what it names is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
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
    """What is wrong with a module's `__all__`."""
    names = declared(tree)
    if names is None:
        return []
    return [
        *(["__all__ is not sorted"] if names != sorted(names, key=sort_key) else []),
        *(f"{name} is missing from __all__" for name in sorted(defined(tree) - set(names))),
        *(f"{name} is in __all__ and not defined" for name in sorted(set(names) - bound(tree))),
    ]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_all_is_sorted_and_complete(path):
    """Every public function and class of a module with `__all__` is in it, in order; the module has a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))

    assert faults(tree) == []
    assert ast.get_docstring(tree), "the module does not open with the truth that it maintains"


def test_a_planted_fault_is_caught():
    """The check can fail: unsorted, missing and absent names are each reported."""
    planted = ast.parse('__all__ = ["b", "a", "gone"]\n\ndef a(): pass\n\ndef b(): pass\n\ndef c(): pass\n')

    assert faults(planted) == [
        "__all__ is not sorted",
        "c is missing from __all__",
        "gone is in __all__ and not defined",
    ]


def undocumented(value: object) -> list[str]:
    """What a reader of `help(value)` finds without a word: the object itself, or public methods that it defines."""
    members = vars(value).items() if inspect.isclass(value) else ()
    public = [(name, member) for name, member in members if not name.startswith("_") and is_code(member)]
    named = [("itself", value), *((name, getattr(value, name)) for name, _ in public)]
    return [name for name, member in named if not inspect.getdoc(member)]


def is_code(member: object) -> bool:
    """Whether a class attribute is a method or a property."""
    return inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod, property))


def test_everything_public_is_documented():
    """Every name of the package, and every public method that it defines or overrides, has a docstring."""
    assert {name: undocumented(getattr(mixprec, name)) for name in mixprec.__all__ if name != "__version__"} == {
        name: [] for name in mixprec.__all__ if name != "__version__"
    }


def test_a_missing_docstring_is_caught():
    """The check can fail: a class without a docstring and its undocumented method and property are each named."""

    class Bare:
        def method(self):
            pass

        @property
        def shown(self):
            return 1

        def _private(self):
            pass

    assert undocumented(Bare) == ["itself", "method", "shown"]


@pytest.mark.parametrize("name", mixprec.__all__)
def test_a_lazy_name_is_what_its_home_defines(name):
    """`mixprec.NAME` is the very object of the module that defines it, and is documented."""
    value = getattr(mixprec, name)

    if name in mixprec._HOME:
        assert value is getattr(importlib.import_module(mixprec._HOME[name]), name)
    assert value.__doc__


def test_an_unknown_name_says_which_exist():
    """The nearest rejection: a name that is not public raises AttributeError and lists those that are."""
    with pytest.raises(AttributeError, match=r"no attribute 'Precison'; public names: Converted, GradScaler, Guard"):
        _ = mixprec.Precison


def test_dir_lists_every_public_name():
    """`dir(mixprec)` shows the lazy names before they are used."""
    assert set(mixprec.__all__) <= set(dir(mixprec))
