"""What is released is complete, and works where nothing else is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11, 4), reason="the script unpacks with tarfile's filter, which is newer")
def test_wheel_and_sdist_build_agree_and_install_alone(tmp_path):
    """`make dist`: both files are built, the wheel of the sdist is the same, and lint works in an empty environment."""
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "dist.py", tmp_path], capture_output=True, text=True, timeout=240
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("mixprec-*.whl"))) == 1
    (sdist,) = tmp_path.glob("mixprec-*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert sum(name.endswith("CITATION.cff") for name in archive.getnames()) == 1
