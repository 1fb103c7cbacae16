"""flake8 shows the linter's findings under its own rules, and pre-commit runs the command that exists."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mixprec.cli import main
from mixprec.lint._flake8 import Plugin

IDLE = "x = 1  # mixprec: ignore[MP02] why\n"
"""A comment that names no code: a warning."""
ROOT = Path(__file__).parents[2]


def test_the_plugin_yields_what_flake8_takes() -> None:
    """Line counts from 1, column from 0, the text starts with the code, the type is the plugin's."""
    ((line, column, text, kind),) = Plugin(ast.parse(IDLE), "a.py", [IDLE]).run()
    assert (line, column, kind) == (1, 7, Plugin)
    assert text.startswith("MP290 unused-ignore: ")


def _flake8(folder: Path, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "flake8", "--isolated", "--jobs", "1", *arguments, "a.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.splitlines()


def test_flake8_finds_the_plugin_and_obeys_its_own_rules(tmp_path: Path) -> None:
    """The installed entry point is used; --ignore and noqa silence it as they silence everything else."""
    file = tmp_path / "a.py"
    file.write_text(IDLE)
    (line,) = _flake8(tmp_path)
    assert line.startswith("a.py:1:8: MP290 unused-ignore: ")
    assert _flake8(tmp_path, "--ignore", "MP29") == []
    file.write_text(IDLE.replace("why", "why  # noqa: MP290"))
    assert _flake8(tmp_path) == []


def test_a_syntax_error_is_told_once(tmp_path: Path) -> None:
    """flake8 reports what does not parse; the plugin does not repeat it."""
    (tmp_path / "a.py").write_text("import torch.amp\nautocast(\n")
    assert [line.split()[1] for line in _flake8(tmp_path)] == ["E999"]


@pytest.mark.parametrize("hook", yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()), ids=lambda h: h["id"])
def test_a_hook_runs_a_command_that_exists(hook: dict[str, object]) -> None:
    """A hook has what pre-commit asks for, and its entry is our command with options that it takes."""
    assert {"id", "name", "entry", "language"} <= set(hook)
    program, command, *options = str(hook["entry"]).split()
    assert program == "mixprec"
    parsed = main.get_command(None, command)  # type: ignore[arg-type]
    assert parsed is not None
    assert set(options) <= {option for parameter in parsed.params for option in parameter.opts}
