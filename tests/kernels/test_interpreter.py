"""Every kernel, run by Triton's interpreter on CPU tensors, does what PyTorch's kernels do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "interpreted"

pytest.importorskip("triton", reason="Triton is published for Linux only")


def test_the_kernels_pass_in_the_interpreter():
    """All tests in `interpreted` pass there, and none is left out."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER)],
        cwd=ROOT,
        env={**mine, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\n(\d+) passed in", done.stdout), done.stdout
