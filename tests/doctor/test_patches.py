"""A change of the text is as small as the place, is Python, and leaves everything else as it was."""

from __future__ import annotations

import textwrap

import pytest

from mixprec.doctor._patches import call_island, code_islands, edited, in_code_of, lint_change
from mixprec.lint import lint_source
from mixprec.records import Edit, Location

BLOCK = """\
class Block(nn.Module):
    def forward(self, x):
        return x + self.wo(torch.relu(self.wi(x)))
"""


def island(location):
    """Every change for a place, the smallest first."""
    call = call_island(location)
    return [*([] if call is None else [call]), *code_islands(location)]


@pytest.fixture
def islands(tmp_path):
    """`islands(source, line, module)` -> the lines that each change adds and removes, in the order of changes."""

    def islands(source, line, module=None):
        file = tmp_path / "train.py"
        file.write_text(textwrap.dedent(source))
        changes = island(Location(file=str(file), line=line, module=module))
        assert all(change.before == file.read_text() for change in changes)
        return [[x for x in change.diff.splitlines()[3:] if x[0] in "+-"] for change in changes]

    return islands


def test_the_smallest_island_is_one_call_of_a_module(islands):
    """Its argument is computed before, as it was; the rest of the statement stays."""
    assert islands(BLOCK, 3, "layers.3.wo")[0] == [
        "-        return x + self.wo(torch.relu(self.wi(x)))",
        "+        wide = torch.relu(self.wi(x)).float()",
        "+        with torch.autocast(wide.device.type, enabled=False):",
        "+            wide = self.wo(wide)",
        "+        return x + wide",
    ]


def test_then_the_statement_and_then_the_function(islands):
    """Operands are cast where they are read; names of modules and functions are not operands."""
    source = "import torch\ndef loss(p, y):\n    p = p * 2\n    return torch.exp(p).sum() / y.shape[0]\n"

    statement, function = islands(source, 4)

    assert statement == [
        "-    return torch.exp(p).sum() / y.shape[0]",
        "+    with torch.autocast(p.device.type, enabled=False):",
        "+        return torch.exp(p.float()).sum() / y.shape[0]",
    ]
    assert function[2:5] == [
        "+    with torch.autocast(p.device.type, enabled=False):",
        "+        p = p.float()",
        "+        p = p * 2",
    ]


@pytest.mark.parametrize(
    "statement", ["y = [self.wo(x) for x in xs]", "y = self.wo(x) if x else 0", "y = self.wo(x, x)"]
)
def test_a_call_that_may_not_run_once_is_not_moved(islands, statement):
    """In a comprehension or a condition, or with several arguments: no such change; the nearest plain call has one."""
    source = "def f(self, xs, x):\n    {}\n"

    assert not any("self.wo(wide)" in line for change in islands(source.format(statement), 2, "wo") for line in change)
    assert any(
        "self.wo(wide)" in line for change in islands(source.format("y = self.wo(x)"), 2, "wo") for line in change
    )


def test_no_place_no_change(islands, tmp_path):
    """Without a line, a file, or Python in it, nothing is proposed."""
    assert island(Location()) == []
    assert island(Location(file=str(tmp_path / "absent.py"), line=1)) == []
    assert islands("def f(:\n", 1) == []
    assert islands("import os\n", 1) == []


def test_a_line_in_the_class_of_the_module_is_its_own_code(tmp_path):
    """A line of `Block` is `Block`'s own code, and merely calls the `Linear` that is in it."""
    file = tmp_path / "train.py"
    file.write_text(BLOCK)

    assert in_code_of(Location(file=str(file), line=3), "Block")
    assert not in_code_of(Location(file=str(file), line=3), "Linear")
    assert not in_code_of(Location(), "Block")


def test_the_fix_of_a_lint_finding_is_a_change(tmp_path):
    """What lint's own fix does, as a diff."""
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\nscaler = torch.amp.GradScaler()\nfor x in data:\n    scaler.scale(model(x)).backward()\n"
        "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step(opt)\n    scaler.update()\n"
    )
    finding = next(f for f in lint_source(file.read_text(), str(file)) if f.code == "MP002")

    change = lint_change(finding)

    assert change is not None
    assert [line for line in change.diff.splitlines()[3:] if line[0] in "+-"] == ["+    scaler.unscale_(opt)"]


def test_edits_count_characters_and_are_made_from_the_end():
    """Two edits of one line, with text before them that is longer in bytes; an insertion after the last line."""
    edits = [Edit(1, 8, 1, 9, "XX"), Edit(1, 5, 1, 6, "YY"), Edit(2, 1, 2, 1, "end\n")]

    assert edited("é = a + b\n", edits) == "é = YY +XXb\nend\n"
