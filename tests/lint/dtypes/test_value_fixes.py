"""The safe fixes of rules about values and calls keep every argument, and what they leave runs and is silent."""

from __future__ import annotations

import pytest
import torch

from mixprec.lint import Project, lint_source
from mixprec.records import Finding


def fixed(source: str, code: str) -> str:
    """`source` with the safe fixes of `code` made."""
    found = [f for f in lint_source(source, "fix.py", select=[code], project=Project()) if f.fix and f.fix.safe]
    return edited(source, found)


def edited(source: str, found: list[Finding]) -> str:
    lines = source.split("\n")
    edits = {edit for finding in found if finding.fix is not None for edit in finding.fix.edits}
    for edit in sorted(edits, key=lambda e: (e.start_line, e.start_column), reverse=True):
        first, last = lines[edit.start_line - 1], lines[edit.end_line - 1]
        text = first[: edit.start_column - 1] + edit.text + last[edit.end_column - 1 :]
        lines[edit.start_line - 1 : edit.end_line] = text.split("\n")
    return "\n".join(lines)


FORMS = [
    ("import torch\nwith torch.cuda.amp.autocast():\n    pass\n", 'with torch.amp.autocast("cuda"):'),
    ("import torch\nwith torch.cuda.amp.autocast(False):\n    pass\n", 'torch.amp.autocast("cuda", enabled=False)'),
    (
        "import torch\nwith torch.cuda.amp.autocast(True, torch.bfloat16):\n    pass\n",
        'torch.amp.autocast("cuda", enabled=True, dtype=torch.bfloat16)',
    ),
    (
        "import torch\nwith torch.cpu.amp.autocast(dtype=torch.bfloat16):\n    pass\n",
        'torch.amp.autocast("cpu", dtype=torch.bfloat16)',
    ),
    ("import torch\nscaler = torch.cuda.amp.GradScaler(1024.0)\n", 'torch.amp.GradScaler("cuda", 1024.0)'),
    ("import torch\nscaler = torch.cuda.amp.GradScaler(enabled=True)\n", 'torch.amp.GradScaler("cuda", enabled=True)'),
    (
        "from torch.cuda.amp import autocast as ac\nwith ac(enabled=True):  # why\n    pass\n",
        'from torch.amp import autocast as ac\nwith ac("cuda", enabled=True):  # why',
    ),
    (
        "from torch.cuda.amp import custom_bwd, custom_fwd\n\n\n@custom_fwd\ndef f(ctx):\n    pass\n\n\n"
        "@custom_bwd\ndef b(ctx):\n    pass\n",
        '@custom_fwd(device_type="cuda")\ndef f(ctx):',
    ),
    (
        "import torch\nfrom torch.cuda.amp import (\n    GradScaler,\n    autocast,\n)\nscaler = GradScaler()\n"
        "with autocast():\n    pass\n",
        'from torch.amp import (\n    GradScaler,\n    autocast,\n)\nscaler = GradScaler("cuda")',
    ),
]


@pytest.mark.parametrize(("source", "wanted"), FORMS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_old_api_becomes_the_new_one(source, wanted):
    """Every form of a call moves to torch.amp with its arguments, runs without a warning, and is not found again."""
    result = fixed(source, "MP202")

    assert wanted in result
    assert fixed(result, "MP202") == result
    with torch.random.fork_rng():
        exec(compile(result, "fixed.py", "exec"), {})


@pytest.mark.parametrize(
    "source",
    [
        "from torch.cuda.amp import autocast\nchosen = autocast\n",
        "from torch.cuda.amp import autocast\nwith autocast(*flags):\n    pass\n",
        "from torch.cuda.amp import autocast, common\nwith autocast():\n    pass\n",
        "from torch.cuda.amp import GradScaler\nscaler = GradScaler(**options)\n",
    ],
)
def test_what_cannot_be_rewritten_whole_is_left_as_it_is(source):
    """Where one use of an import cannot be rewritten, nothing is: half a rewrite would not run."""
    assert lint_source(source, "fix.py", select=["MP202"], project=Project()) != []
    assert fixed(source, "MP202") == source


def test_a_project_for_old_releases_keeps_the_old_api():
    """torch.amp.GradScaler is from 2.3: a project that accepts older releases is not told to use it."""
    source = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"

    assert lint_source(source, "fix.py", select=["MP202"], project=Project(requirements=["torch>=1.13"])) == []
    assert lint_source(source, "fix.py", select=["MP202"], project=Project(requirements=["torch>=2.4"])) != []


def test_a_fallback_for_old_releases_is_left_alone():
    """An import of the old API inside a try stands there because the file knows about versions."""
    source = (
        "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\n"
    )

    assert lint_source(source, "fix.py", select=["MP202"], project=Project()) == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("y = torch.ones(2).bfloat16().numpy()\n", "y = torch.ones(2).bfloat16().float().numpy()\n"),
        ("x = torch.ones(2).bfloat16()\ny = x.detach().cpu().numpy()\n", "y = x.detach().cpu().float().numpy()\n"),
    ],
)
def test_numpy_gets_float32(source, wanted):
    """The repaired line runs and gives NumPy a float32 array."""
    result = fixed(f"import torch\n{source}", "MP172")
    names: dict[str, object] = {}
    exec(result, names)

    assert wanted in result
    assert str(getattr(names["y"], "dtype", "")) == "float32"


def test_custom_bwd_takes_over_the_device_and_not_the_casts():
    """custom_bwd has a device_type and nothing else, whatever custom_fwd is given."""
    source = (
        "import torch\n\n\nclass F(torch.autograd.Function):\n    @staticmethod\n"
        '    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)\n    def forward(ctx, x):\n'
        "        return x\n\n    @staticmethod\n    def backward(ctx, g):\n        return g\n"
    )
    result = fixed(source, "MP206")

    assert '    @staticmethod\n    @torch.amp.custom_bwd(device_type="cpu")\n    def backward' in result
    exec(result, {})
