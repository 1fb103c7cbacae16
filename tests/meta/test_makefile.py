"""Every target does the set-up that it needs, and a second call does none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def make(folder: Path, *arguments: str) -> str:
    """Standard output of a call of make that must succeed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def clone(tmp_path):
    """A folder with what set-up depends on, without a virtual environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", ["setup", "demo", "test", "format", "lint", "types", "layers", "check"])
def test_every_target_sets_up_first_and_only_once(clone, target):
    """In a fresh clone each target would install; with an environment that is up to date it would not; when
    requirements changed it would again.
    """
    assert "pip install" in make(clone, "-n", target)

    (clone / ".venv").mkdir()
    (clone / ".venv" / ".ready").touch()
    assert "pip install" not in make(clone, "-n", target)

    later = (clone / ".venv" / ".ready").stat().st_mtime + 10
    os.utime(clone / "constraints.txt", (later, later))
    assert "pip install" in make(clone, "-n", target)


def test_help_lists_every_target(clone):
    """`make` and `make help` name each target with a word about it."""
    makefile = (clone / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()

    listed = re.findall(r"^  make (\S+) +\S", make(clone, "help"), re.MULTILINE)

    assert sorted(listed) == sorted(targets)
    assert make(clone) == make(clone, "help")


def test_an_old_python_is_refused_with_a_way_out(clone):
    """A Python before 3.10 stops set-up with one sentence that names it; the nearest, the one in use, passes."""
    old = clone / "old-python"
    old.write_text('#!/bin/sh\nexec python3 -c "import sys; sys.version_info = (3, 9); $2"\n', encoding="utf-8")
    old.chmod(0o755)

    done = subprocess.run(["make", "setup", f"PYTHON={old}"], cwd=clone, capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert "mixprec needs Python 3.10 or later" in done.stderr
    assert not (clone / ".venv").exists()
