"""The speed of the linter is measured over the same files for every program, and in whole runs."""

from __future__ import annotations

import sys

import pytest

from benchmarks.harness import Bench
from benchmarks.lint_speed import OURS, call, commands, copy_tree, kinds, race, run


def test_the_tree_is_the_same_every_time(tmp_path):
    """The files are the first by path, so that two copies hold the same."""
    one, other = copy_tree(tmp_path / "a", 30), copy_tree(tmp_path / "b", 30)

    assert len(one) == 30
    assert [p.relative_to(tmp_path / "a") for p in one] == [p.relative_to(tmp_path / "b") for p in other]
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in other]


def test_files_are_sorted_by_whether_they_mention_precision(tmp_path):
    """A file with the word is parsed and counted apart from one that only has the letters."""
    (tmp_path / "a.py").write_text("x = 'an example'\n")
    (tmp_path / "b.py").write_text("use_amp = True\n")
    silent, speaking = kinds([tmp_path / "a.py", tmp_path / "b.py"])

    assert [len(silent.milliseconds), len(speaking.milliseconds)] == [1, 1]
    assert silent.row(2)["share"] == 0.5


def test_a_program_that_breaks_is_no_fast_program():
    """Findings (exit code 1) are a result; anything else is an error that shows what the program said."""
    call([sys.executable, "-c", "raise SystemExit(1)"])
    with pytest.raises(RuntimeError, match="no such option"):
        call([sys.executable, "-c", "import sys; sys.stderr.write('no such option'); sys.exit(2)"])


def test_programs_take_turns():
    """Every program runs once per round, and both kinds of time are kept.

    The program works until its own processor clock has moved: some kernels count in steps of 10 ms.
    """
    program = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.05: pass"]
    wall, cpu = race({"one": program, "other": program}, rounds=2)

    assert {name: len(times) for name, times in wall.times.items()} == {"one": 2, "other": 2}
    assert min(wall.minimum("one"), cpu.minimum("other")) > 0


def test_the_linter_runs_on_the_tree(tmp_path, monkeypatch):
    """The measured command is the user's command, and a quick run gives both tables and no target."""
    assert commands(tmp_path)[OURS][1:4] == ["-m", "mixprec", "lint"]
    monkeypatch.setattr("benchmarks.lint_speed.QUICK_FILES", 5)
    monkeypatch.setattr("benchmarks.lint_speed.commands", lambda tree: {OURS: commands(tree)[OURS]})
    answer = run(Bench(quick=True), 1.0)

    assert [table.name for table in answer.tables] == ["lint_speed", "lint_kinds"]
    assert answer.targets == []
    assert sum(row["files"] for row in answer.tables[1].rows) == 5
