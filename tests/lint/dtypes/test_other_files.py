"""What a script does to a model of another file is told in the script, with the place in the other file."""

from __future__ import annotations

from mixprec.lint import FileView, Project, lint_source
from mixprec.lint.dtypes import traces

MODEL = """\
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(-2, -1)
        return scores.masked_fill(mask, -1e9).softmax(-1)
"""
SCRIPT = """\
import torch
from model import Attention

model = Attention(8)
mask = torch.ones(4, 4, dtype=torch.bool)
with torch.autocast("cuda", dtype=torch.{dtype}):
    weights = model(torch.ones(2, 4, 8), mask)
"""


def test_a_fault_in_another_file_is_told_where_the_script_calls_it():
    """The finding stands at the call in the linted file and names file and line of the op."""
    project = Project(sources={"model.py": MODEL})
    found = lint_source(SCRIPT.format(dtype="float16"), "train.py", project=project)

    assert [(f.code, f.location.file, f.location.line) for f in found] == [("MP041", "train.py", 7)]
    assert found[0].message.endswith("(in model.py, line 13)")


def test_of_several_calls_the_one_that_is_wrong_is_told():
    """The same function, called first in float32 and then in float16, is told at the second call."""
    script = SCRIPT.format(dtype="float16").replace(
        "with torch", "first = model(torch.ones(2, 4, 8), mask)\nwith torch"
    )
    found = lint_source(script, "train.py", project=Project(sources={"model.py": MODEL}))

    assert [(f.code, f.location.line) for f in found] == [("MP041", 8)]


def test_the_same_model_is_right_in_bfloat16():
    """bfloat16 holds the constant, so the script that runs the model in it has no finding."""
    project = Project(sources={"model.py": MODEL})

    assert lint_source(SCRIPT.format(dtype="bfloat16"), "train.py", project=project) == []


def test_a_model_alone_has_no_dtype():
    """Linted by itself the other file is silent: nothing says in which precision it runs."""
    assert lint_source(MODEL + "# may run in float16\n", "model.py", project=Project()) == []


def test_files_that_import_each_other_end():
    """A circle of imports is walked once."""
    sources = {
        "a.py": "from b import g\n\ndef f(x):\n    return g(x)\n",
        "b.py": "from a import f\n\ndef g(x):\n    return f(x)\n",
    }
    view = FileView("main.py", "import torch\nfrom a import f\nf(torch.ones(1).half())\n", Project(sources=sources))

    assert [trace.failure for trace in traces(view)] == [None]
