"""A view tells what names, constants and places in a text are, from the text alone."""

from __future__ import annotations

import ast

import pytest

from mixprec.lint import FileView, Project
from mixprec.lint._constants import UNKNOWN, Dtype
from mixprec.lint._document import splice
from mixprec.lint._owners import Owner


def view_of(source, **given):
    return FileView("a.py", source, Project(**given) if given else None)


def last_call(view):
    return max(view.nodes(ast.Call), key=lambda call: (call.lineno, call.col_offset))


NAMES = [
    ("import torch\ntorch.amp.autocast()", "torch.amp.autocast"),
    ("import torch.cuda.amp as amp\namp.GradScaler()", "torch.cuda.amp.GradScaler"),
    ("from torch.cuda import amp\namp.GradScaler()", "torch.cuda.amp.GradScaler"),
    ("from torch.cuda.amp import autocast as ac\nac()", "torch.cuda.amp.autocast"),
    ("import torch.nn.functional as F\nF.relu()", "torch.nn.functional.relu"),
    ("import torch\nregion = torch.autocast\nregion()", "torch.autocast"),
    ("import torch\ngetattr(torch.cuda.amp, 'autocast')()", "torch.cuda.amp.autocast"),
    ("from torch.amp import *\nGradScaler()", "torch.amp.GradScaler"),
    (
        "try:\n    from torch.amp import autocast as a\nexcept E:\n    from torch.cuda.amp import autocast as a\na()",
        "torch.amp.autocast",
    ),
    ("from .engine import step\nstep()", ".engine.step"),
    ("from . import engine\nengine.step()", ".engine.step"),
    ("import torch\ndef f(torch):\n    torch.autocast()", "torch.autocast"),
    ("helper()", "helper"),
]


@pytest.mark.parametrize(("source", "name"), NAMES)
def test_a_name_stands_for_what_it_was_bound_to(source, name):
    """Imports, aliases, getattr, stars and relative imports give the dotted name."""
    view = view_of(source)

    assert view.dotted(last_call(view).func) == name


def test_a_cycle_of_names_ends():
    """`a = b; b = a` stands for nothing else."""
    view = view_of("a = b\nb = a\na()")

    assert view.dotted(last_call(view).func) in ("a", "b", None)


CONSTANTS = [
    ("f(3 * 2 ** 4)", 48),
    ("N = 4\nf(N - 1)", 3),
    ("N = 4\nN = 5\nf(N)", UNKNOWN),
    ("N = 4\nN += 1\nf(N)", UNKNOWN),
    ("def g():\n    global N\n    N = 5\nN = 4\nf(N)", UNKNOWN),
    ("for N in range(3):\n    f(N)", UNKNOWN),
    ("def g(N=4):\n    f(N)", UNKNOWN),
    ("def g():\n    N = 4\n    f(N)", 4),
    ("import torch\nf(torch.half)", Dtype("float16")),
    ("import torch\nD = torch.bfloat16 if False else torch.float16\nf(D)", Dtype("float16")),
    ("import torch\nf(getattr(torch, 'bfloat16'))", Dtype("bfloat16")),
    ("f(args.amp)", UNKNOWN),
    ("f(args.amp and False)", False),
    ("f(True or args.amp)", True),
    ("f('fp16' == 'fp' + '16')", True),
    ("f(1 / 0)", UNKNOWN),
    ("f(10 ** 10 ** 10)", UNKNOWN),
    ("f('a' * 10 ** 9)", UNKNOWN),
    ("f(not None)", True),
]


@pytest.mark.parametrize(("source", "value"), CONSTANTS)
def test_a_constant_has_one_value_in_every_run(source, value):
    """What is the same in every run is known; arguments, options and what changes stay open."""
    view = view_of(source)
    found = view.constant(view.argument(last_call_named(view, "f"), 0, "x"))

    assert found == value
    assert type(found) is type(value)


def last_call_named(view, name):
    return [call for call in view.nodes(ast.Call) if isinstance(call.func, ast.Name) and call.func.id == name][-1]


def test_unknown_is_neither_true_nor_false():
    """A rule that tests an unknown value like a truth value fails instead of guessing."""
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(UNKNOWN)


def test_arguments_are_found_by_place_and_by_name():
    """The argument at a position or under its keyword; none where a star may have given it."""
    view = view_of("f(1, b=2)\nf(*xs, 3)")
    first, second = view.nodes(ast.Call)

    assert view.text(view.argument(first, 0, "a")) == "1"
    assert view.text(view.argument(first, 1, "b")) == "2"
    assert view.argument(first, None, "c") is None
    assert view.argument(second, 1, "b") is None


def test_places_count_characters():
    """Columns are characters, not bytes, and a place spans lines."""
    view = view_of('größe = "ü"; f(\n    1)')
    call = last_call(view)
    place = view.location(call)

    assert (place.line, place.column, place.end_line, place.end_column) == (1, 14, 2, 7)
    assert view.text(call) == "f(\n    1)"


def test_a_form_feed_is_no_line():
    """What Python does not count as the end of a line is none, so places stay right."""
    view = view_of('a = "\x0c"\nf()')

    assert view.lines == ('a = "\x0c"', "f()")
    assert view.location(last_call(view)).line == 2


def test_where_a_node_stands():
    """Function, class, loops and block of a node; a loop outside the function is not around it."""
    view = view_of("for a in x:\n  class C:\n    def m(self):\n      while y:\n        f()\n        g()\n")
    call = view.nodes(ast.Call)[0]
    function = view.function(call)

    assert function is not None
    assert getattr(function, "name", "") == "m"
    assert getattr(view.class_of(call), "name", "") == "C"
    assert [type(loop) for loop in view.loops(call)] == [ast.While]
    assert len(view.block(view.statement(call))) == 2


EDITS = [
    (lambda v, s: v.edit.insert_before(s, "a()\nb()"), "if x:\n    a()\n    b()\n    f()  # kept\n    g()\n"),
    (lambda v, s: v.edit.insert_after(s, "a()"), "if x:\n    f()  # kept\n    a()\n    g()\n"),
    (lambda v, s: v.edit.delete(s), "if x:\n    g()\n"),
    (lambda v, s: v.edit.replace(s.value, "h(1)"), "if x:\n    h(1)  # kept\n    g()\n"),
    (lambda v, s: v.edit.reindent([s], "")[0], "if x:\nf()  # kept\n    g()\n"),
]


@pytest.mark.parametrize(("edit", "after"), EDITS)
def test_an_edit_touches_only_what_it_names(edit, after):
    """Inserting, deleting, replacing and moving lines leaves the rest as it was."""
    source = "if x:\n    f()  # kept\n    g()\n"
    view = view_of(source)

    assert splice(source, [edit(view, view.statement(view.nodes(ast.Call)[0]))]) == after


@pytest.mark.parametrize("source", ["f(); g()\n", "if x: f()\n", "with a: f(); g()\n"])
def test_a_statement_that_shares_its_line_cannot_be_moved(source):
    """No edit is made where a whole line cannot be taken."""
    view = view_of(source)
    stmt = view.statement(next(call for call in view.nodes(ast.Call) if view.text(call) == "f()"))

    assert view.edit.insert_before(stmt, "a()") is None or source.startswith("f()")
    assert view.edit.delete(stmt) is None
    assert view.edit.reindent([stmt], "    ") is None


def test_text_over_several_lines_is_not_moved():
    """Moving a string over several lines would change it."""
    view = view_of('if x:\n    f("""a\n    b""")\n')

    assert view.edit.reindent([view.statement(last_call(view))], "") is None


REQUIREMENTS = [
    (["torch>=1.10,<2.0"], (1, 10), (2, 0)),
    (["torch==2.1.0"], (2, 1, 0), (2, 1, 0)),
    (['dependencies = ["torch >= 2.4", "numpy"]'], (2, 4), None),
    (["torchvision>=0.5"], None, None),
    (["  - pytorch::pytorch=1.13"], (1, 13), (1, 13)),
    (["torch"], None, None),
]


@pytest.mark.parametrize(("lines", "oldest", "newest"), REQUIREMENTS)
def test_versions_are_read_from_requirements(lines, oldest, newest):
    """Bounds on torch in the forms that projects write; a package with a similar name is another one."""
    project = Project(requirements=lines)

    assert (project.oldest(), project.newest()) == (oldest, newest)
    assert project.may_run_below((2, 3)) is bool((oldest and oldest < (2, 3)) or (not oldest and newest))


def test_a_project_is_found_around_a_file(tmp_path):
    """The closest folder above that looks like a root; modules are looked up beside the file first."""
    (tmp_path / "requirements.txt").write_text("torch>=2.2\n", encoding="utf-8")
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "helpers.py").write_text("def step():\n    pass\n", encoding="utf-8")
    project = Project.around(folder / "train.py")

    assert project.oldest() == (2, 2)
    assert project.module("helpers", str(folder / "train.py")) is not None
    assert project.module("package.helpers", str(tmp_path / "main.py")) is not None
    assert project.module("nothing", str(folder / "train.py")) is None


def test_owners_are_those_whose_step_is_used():
    """A framework that is only imported owns nothing."""
    assert view_of("from accelerate import Accelerator\na = Accelerator()").owners == {Owner.ACCELERATE}
    assert view_of("import lightning as L\nclass M(L.LightningModule): pass").owners == {Owner.LIGHTNING}
    assert view_of("from accelerate import Accelerator").owners == frozenset()
    assert view_of("class Trainer: pass\nclass Mine(Trainer): pass").owners == frozenset()


def test_an_analysis_is_made_once():
    """What rules share is computed once per file."""
    made = []
    view = view_of("x = 1")

    def analysis(v):
        made.append(v)
        return len(made)

    assert [view.memo(analysis), view.memo(analysis)] == [1, 1]
