"""The example does what its docstring says."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "replay_a_step.py"


def test_the_example_names_the_square(tmp_path, capsys):
    """The step that fails replays bit for bit, and the hand-written square is named."""
    result = runpy.run_path(str(EXAMPLE))["main"](["--folder", str(tmp_path)])

    assert (result["exact"], result["repeats"], result["op"]) == (True, True, "aten.mul.Tensor")
    assert result["line"] == "size = hidden * hidden"
    assert "replayed bit for bit: True" in capsys.readouterr().out
