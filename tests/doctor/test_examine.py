"""From a script to an exit code: the command runs it, judges it, tries a cure, and cleans up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from mixprec._script import _processes
from mixprec.cli import main

pytestmark = pytest.mark.slow

OVERFLOW = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 8)
        with torch.no_grad():
            self.wide.weight.mul_(1e6)

    def forward(self, x):
        return x + self.wide(x)

model = nn.Sequential(nn.Linear(8, 8), Block(), nn.LayerNorm(8), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(12):
    step()
"""


@pytest.fixture
def doctor(script, tmp_path, monkeypatch):
    """`doctor(source, *options)` -> (exit code, stdout, stderr) of the command on that script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def doctor(source, *options, argv=(), training=True):
        script(source, training=training)
        result = CliRunner().invoke(main, ["doctor", *options, "train.py", *argv], prog_name="mixprec")
        return result.exit_code, result.stdout, result.stderr

    return doctor


def test_an_overflow_is_found_and_cured(doctor, tmp_path):
    """Exit code 1, the cause at the user's line, confirmed, and a patch whose run is healthy; the file is untouched."""
    code, out, _ = doctor(OVERFLOW, "--format", "json", "--steps", "12")
    found = json.loads(out)
    text = (tmp_path / "train.py").read_text()

    assert (code, found["verdict"]["code"]) == (1, "MP030")
    assert text.splitlines()[found["verdict"]["location"]["line"] - 1].strip() == "return x + self.wide(x)"
    assert found["verdict"]["confidence"] == "confirmed by control"
    assert found["verdict"]["fix_tried"]["value"] == "is healthy"
    assert "+            wide_ = " in found["patch"]["diff"] or "enabled=False" in found["patch"]["diff"]
    assert text.endswith(OVERFLOW)


IN_A_SEQUENTIAL = """
blocks = [nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.LayerNorm(8)) for _ in range(4)]
model = nn.Sequential(*blocks, nn.Linear(8, 1))
with torch.no_grad():
    model[2][2].weight.mul_(1e6)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(12):
    step()
"""


def test_a_part_that_no_line_calls_is_found_and_cured(doctor):
    """The smallest part in float32 is named, and the patch puts it there after the model is built."""
    code, out, _ = doctor(IN_A_SEQUENTIAL, "--format", "json", "--steps", "12")
    found = json.loads(out)

    assert (code, found["verdict"]["code"]) == (1, "MP030")
    assert found["verdict"]["evidence"][-1]["value"] == "2.2 (Linear)"
    assert found["verdict"]["fix_tried"]["value"] == "is healthy"
    added = [line[1:] for line in found["patch"]["diff"].splitlines()[3:] if line.startswith("+")]
    assert added[0] == "part = model[2][2]  # computes in float32 from here on"
    assert len(added) == 3


def test_a_healthy_script_has_nothing_wrong(doctor):
    """Exit code 0, no verdict, and what was looked at."""
    code, out, err = doctor("for _ in range(12): step()", "--steps", "12")

    assert code == 0, out + err
    assert out.startswith("nothing wrong: train.py")
    assert "looked at" in out
    assert "arm observe (unchanged): finished" in err


def test_a_script_with_an_error_of_its_own_is_told_so(doctor):
    """Exit code 2 and the script's traceback; its arguments arrive as they are."""
    code, out, _ = doctor("raise KeyError(sys.argv[1:])", "--fast", argv=("--steps", "7"))

    assert code == 2
    assert "The script ends in an error of its own." in out
    assert "KeyError: ['--steps', '7']" in out


def test_ctrl_c_leaves_a_partial_report_and_nothing_else(script, tmp_path):
    """After the first arm an interrupt ends the second; the report is written and no process is left."""
    script("for _ in range(6): step()\nif os.path.exists('again'): __import__('time').sleep(999)\nopen('again', 'w')")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "mixprec", "doctor", "train.py"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell inherit that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("arm observe (unchanged): finished")
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=120)
        finally:
            process.kill()

    assert "Interrupted: what follows comes from the arms until then." in out
    assert "observe" in out
    assert list(_processes.marked(f"MIXPREC_SCRIPT={tmp_path}")) == []


def test_a_missing_script_and_a_wrong_time_are_refused(doctor, tmp_path):
    """Exit code 2 with what is accepted."""
    result = CliRunner().invoke(main, ["doctor", "absent.py"], prog_name="mixprec")
    assert (result.exit_code, "an existing Python file" in result.stderr) == (2, True)
    code, _, err = doctor("", "--time", "soon")
    assert (code, "write 90, 90s, 10m or 1h" in err) == (2, True)
