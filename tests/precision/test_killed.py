"""A run that is killed and resumed, again and again, ends with the parameters of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).parent / "killed_worker.py"


def run(folder, moment="never", at=0):
    """The exit status of one process."""
    command = [sys.executable, str(WORKER), str(folder), moment, str(at)]
    return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120, check=False).returncode


@pytest.mark.slow
def test_killing_a_run_at_any_moment_changes_nothing(tmp_path):
    """SIGKILL in forward, in backward, before a step and in a save, inside windows and at their ends: same bits."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    straight.mkdir()
    killed.mkdir()
    assert run(straight) == 0
    for moment, at in [("backward", 1), ("step", 5), ("save", 7), ("forward", 9)]:
        assert run(killed, moment, at) == -signal.SIGKILL
        assert not (killed / "final.pt").exists()
    assert run(killed) == 0
    one, other = (torch.load(folder / "final.pt") for folder in (straight, killed))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
