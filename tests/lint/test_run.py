"""No file stops a run, not even one at which the process that lints it dies."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from mixprec.lint import CRASHED
from mixprec.lint._lint_file import FileResult
from mixprec.lint._run import _shared_out

LINT = """
import os
from mixprec.lint._lint_file import FileResult

def fragile(file):
    if file.name.startswith("deadly"):
        os._exit(3)
    return FileResult(str(file))

def once(file):
    mark = file.with_name("mark")
    if file.name.startswith("deadly") and not mark.exists():
        mark.touch()
        os._exit(3)
    return FileResult(str(file))
"""


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module that other processes can import, with functions that end their process at some files."""
    (tmp_path / "fragile_lint.py").write_text(LINT)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module("fragile_lint")


@pytest.mark.parametrize("names", [["a", "deadly", "b", "c"], ["deadly_1", "a", "deadly_2"], ["a", "b"]])
def test_every_file_has_a_result_though_processes_die(lint, tmp_path, names):
    """A file that kills its process gets a finding that says so; all others get their own results."""
    files = [tmp_path / name for name in names]
    done = _shared_out(files, lint.fragile, workers=2)

    assert set(done) == set(files)
    for file in files:
        if file.name.startswith("deadly"):
            assert [finding.code for finding in done[file].findings] == [CRASHED]
            assert done[file].unreadable
        else:
            assert done[file] == FileResult(str(file))


def test_a_process_that_somebody_ended_costs_nothing_but_time(lint, tmp_path):
    """Where the second try succeeds, nothing is reported."""
    files = [tmp_path / name for name in ("a", "deadly", "b")]

    assert _shared_out(files, lint.once, workers=2) == {file: FileResult(str(file)) for file in files}
