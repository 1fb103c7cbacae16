"""A module imports only its own layer and those below; records and rules never import torch."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "mixprec"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"_version", "errors", "records", "formats", "causes"}),
    frozenset({"_headroom", "_loss_scale", "_scale_layouts", "presets", "_policy", "lint"}),
    frozenset({"_autocast", "_gradients", "_kernels", "_agreement", "_hardware", "_lowbit", "_master"})
    | frozenset({"_headroom_tensors", "_scale_tensors", "_trace"}),
    frozenset({"_scaler", "_script", "_taps"}),
    frozenset({"_precision", "_schedule", "monitor", "audit", "doctor", "_convert", "_patch", "migrate"}),
    frozenset({"report", "cli", "integrations", "__main__"}),
)
"""The table of the design: what stands in row n may import rows 0 to n. A new module gets a place here."""

FACADE = "__init__"  # hands out names of every layer lazily; nothing inside the package may import from it

SIBLINGS = frozenset({"_precision", "monitor", "audit", "doctor", "_convert", "_patch", "migrate"})
"""Modules of layer 4 that never import each other; `_schedule` is below them and any may use it."""

WITHOUT_TORCH = LAYERS[0] | LAYERS[1]


def layer_of(name: str) -> int | None:
    """The row of LAYERS that `name`, a module or folder at the top of the package, stands in."""
    return next((row for row, names in enumerate(LAYERS) if name in names), None)


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """(dotted module, line) of every import in `tree`, at whatever depth; `package` resolves relative ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module.split(".") if node.module else ())))
            if module == "mixprec":
                yield from ((f"mixprec.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield module, node.lineno
        elif isinstance(node, ast.Call) and called(node.func) == "import_module":
            literals = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
            yield from ((str(name), node.lineno) for name in literals)


def called(function: ast.expr) -> str:
    """The last name of what is called: `import_module` of `importlib.import_module`."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def objection(top: str, module: str) -> str | None:
    """Why `top` may not import `module`, or None where it may."""
    first, _, rest = module.partition(".")
    if first == "torch" and top in WITHOUT_TORCH:
        return "imports torch, which layers 0 and 1 do without"
    if first != "mixprec":
        return None
    target = rest.partition(".")[0]
    row = layer_of(target)
    if row is None:
        return f"imports mixprec.{target}, which is a lazy name of the package or has no place in LAYERS"
    own = layer_of(top)
    assert own is not None
    if row > own:
        return f"is in layer {own} and imports mixprec.{target} from layer {row}"
    if target != top and {top, target} <= SIBLINGS:
        return f"imports its sibling mixprec.{target}"
    return None


def breaches(root: Path) -> list[str]:
    """One line per import that breaks the layers, and per module without a place."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        top = parts[0]
        if top == FACADE:
            continue
        if layer_of(top) is None:
            found.append(f"{path.name}: mixprec.{top} has no place in LAYERS")
            continue
        for module, line in imported(ast.parse(path.read_text(encoding="utf-8")), ("mixprec", *parts[:-1])):
            reason = objection(top, module)
            if reason:
                found.append(f"{'/'.join(parts)}.py:{line} {reason}")
    return found


def test_every_module_imports_only_its_layer_and_below():
    """No import in the package points upward, sideways in layer 4, or from layers 0 and 1 to torch."""
    assert breaches(SOURCE) == []


PLANTED = [
    ("errors.py", "import mixprec._scaler", "is in layer 0 and imports mixprec._scaler from layer 3"),
    ("errors.py", "from mixprec import Precision", "a lazy name of the package"),
    ("causes/_cause.py", "from .._loss_scale import Rules", "is in layer 0 and imports mixprec._loss_scale"),
    ("causes/_cause.py", "def late():\n    import torch", "imports torch"),
    (
        "records.py",
        "import importlib\nimportlib.import_module('mixprec.doctor')",
        "imports mixprec.doctor from layer 4",
    ),
    ("doctor/new.py", "from mixprec.monitor import anything", "imports its sibling mixprec.monitor"),
    ("stray.py", "", "mixprec.stray has no place in LAYERS"),
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """(a copy of the package, what is wrong with it as it is)."""
    copy = tmp_path_factory.mktemp("planted") / "mixprec"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy, breaches(copy)


@pytest.mark.parametrize(("file", "code", "objected"), PLANTED)
def test_a_planted_breach_is_caught(copied, file, code, objected):
    """The check can fail: one forbidden line in a copy of the package is reported, with its reason."""
    copy, before = copied
    target = copy / file
    original = target.read_text(encoding="utf-8") if target.exists() else None
    target.parent.mkdir(exist_ok=True)
    target.write_text(f"{original or ''}\n{code}\n", encoding="utf-8")

    (line,) = [line for line in breaches(copy) if line not in before]

    assert objected in line
    target.unlink() if original is None else target.write_text(original, encoding="utf-8")


def test_an_import_downward_is_accepted(tmp_path):
    """The nearest accepted neighbours of the planted breaches pass: downward, inside a folder, to `_schedule`."""
    root = tmp_path / "mixprec"
    for file, code in {
        "_precision.py": "import torch\nfrom mixprec._schedule import warm_up\nfrom mixprec import presets",
        "doctor/run.py": "from mixprec.doctor._trace import record\nfrom ._trace import other",
        "lint/engine.py": "from mixprec.records import Finding\nimport ast",
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(code, encoding="utf-8")

    assert breaches(root) == []
