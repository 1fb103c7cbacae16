"""What is worth having without torch is had without loading torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

LIGHT = {
    "mixprec": "import mixprec",
    "lint": "import mixprec.lint",
    "presets": "import mixprec.presets",
    "presets as a lazy name": "import mixprec; mixprec.presets",
    "policy": "import mixprec; mixprec.Policy",
    "formats": "import mixprec.formats",
    "records and errors": "import mixprec.records, mixprec.errors",
    "causes": "import mixprec.causes; mixprec.causes.all_causes()",
    "command line": "import mixprec.cli",
    "text and JSON": "import mixprec.report.text, mixprec.report.json",
    "mixprec --help": "from mixprec.cli import main; main(['--help'], standalone_mode=False)",
    "mixprec lint --help": "from mixprec.cli import main; main(['lint', '--help'], standalone_mode=False)",
}

REPORT_TORCH = "\nimport sys; sys.stderr.write('heavy=' + ','.join(n for n in ('torch', 'numpy') if n in sys.modules))"


def heavy_modules(statement: str, source: Path) -> str:
    """Which of torch and numpy are loaded in a fresh interpreter once `statement` has run; a comma between names."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    run = subprocess.run(
        [sys.executable, "-c", statement + REPORT_TORCH], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stderr.rpartition("heavy=")[2]


@pytest.mark.parametrize("statement", LIGHT.values(), ids=LIGHT.keys())
def test_it_loads_neither_torch_nor_numpy(statement):
    """A fresh interpreter that runs the statement has not loaded torch or numpy."""
    assert heavy_modules(statement, SOURCE) == ""


def test_a_planted_import_is_caught(tmp_path):
    """The check can fail: with `import torch` planted in errors.py, `import mixprec.errors` is seen to load it."""
    shutil.copytree(SOURCE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    errors = tmp_path / "mixprec" / "errors.py"
    planted = errors.read_text(encoding="utf-8").replace("import difflib", "import difflib\n\nimport torch")
    errors.write_text(planted, encoding="utf-8")

    assert "torch" in heavy_modules("import mixprec.errors", tmp_path)
