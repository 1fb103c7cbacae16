"""`mixprec run` runs a script as it is, records it, and ends as it ends; `mixprec report` makes a page of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import sys, torch
from torch import nn
print("arguments", sys.argv[1:])
torch.manual_seed(0)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
    def forward(self, x):
        return self.layer(x)
body, head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), Head()
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step in range(8):
    with torch.autocast("cpu", torch.float16):
        loss = head(body(torch.randn(3, 4))).float().square().mean() * (float("nan") if step == 5 else 1.0)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("read", sys.stdin.readline().strip())
sys.exit(int(sys.argv[-1]))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(the folder, the process) of a run that was given JSON, an argument that looks like an option, and input."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    return folder, mixprec(
        folder, "run", "--format", "json", "--folder", "record", "train.py", "--lr", "3", given="hello\n"
    )


def mixprec(folder, *arguments, given=""):
    """The command as a process."""
    return subprocess.run(
        [sys.executable, "-m", "mixprec", *arguments],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_the_script_runs_as_it_is(ran):
    """Arguments and input arrive, the exit code is the script's own, and with JSON its output goes to stderr."""
    _, done = ran

    assert done.returncode == 3
    assert "arguments ['--lr', '3']" in done.stderr
    assert "read hello" in done.stderr
    assert "arguments" not in done.stdout


def test_what_was_recorded_is_told(ran):
    """The document counts steps and skips, has the alerts, and both models were found with their modules."""
    folder, done = ran
    document = json.loads(done.stdout)

    (rank,) = document["ranks"]
    assert (rank["steps"], rank["skipped"], rank["benign"]) == (8, 1, 0)
    assert [finding["code"] for finding in document["findings"]] == ["MP133"]
    assert document["errors"] == []
    from mixprec.monitor import read_run

    record = read_run(folder / "record").steps[0]
    assert set(record.modules) == {"(model)", "0", "1", "Head", "Head.layer"}
    assert document["incidents"] == [os.path.join("record", "incidents", "step000005-skipped-rank0")]


def test_a_page_is_made_of_it(ran):
    """`mixprec report` writes a page that loads nothing, and exits with 1 because there was an alert."""
    folder, _ = ran
    done = mixprec(folder, "report", "record", "--format", "json")

    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["summary"]["by_code"] == {"MP133": 1}
    assert document["ranks"][0]["skipped"] == 1
    page = (folder / "record" / "report.html").read_text(encoding="utf-8")
    assert "MP133" in page
    assert "Headroom of activations" in page
    assert "mixprec replay record/incidents/step000005-skipped-rank0" in page
    assert document["incidents"] == [
        {
            "step": 5,
            "rank": 0,
            "kind": "skipped",
            "loss": "nan",
            "folder": os.path.join("record", "incidents", "step000005-skipped-rank0"),
            "headline": "",
        }
    ]


def test_a_script_that_does_not_exist_is_refused(tmp_path):
    """Exit code 2 and one message; beside it, a script without a training runs and records nothing."""
    refused = mixprec(tmp_path, "run", "gone.py")
    assert refused.returncode == 2
    assert "accepted is an existing Python file" in refused.stderr

    (tmp_path / "plain.py").write_text("print('hello')", encoding="utf-8")
    done = mixprec(tmp_path, "run", "--no-incidents", "plain.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr == "mixprec: no optimizer step was seen, so nothing was recorded.\n"


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    """Exit code 2, and the message says what a run is."""
    done = mixprec(tmp_path, "report", str(tmp_path))

    assert done.returncode == 2
    assert "rank0.jsonl" in done.stderr
