"""`mixprec run --engine` runs a script that cannot be edited with mixprec's scaler and autocast."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """\
import torch
from torch.amp import GradScaler
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = GradScaler("cpu")
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = torch.softmax(model(torch.ones(2, 4)), -1)
    scaler.scale(out.float().square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
print(type(scaler).__module__.partition(".")[0], out.dtype)
"""


def run(folder, *arguments):
    (folder / "train.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "-m", "mixprec", "run", *arguments, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_the_engine_and_the_policy_are_in_force(tmp_path):
    """The scaler that the script imports is mixprec's, softmax runs under the policy, and the run is recorded."""
    done = run(tmp_path, "--engine", "--policy", "uniform", "--format", "json", "--no-incidents")
    assert done.returncode == 0, done.stderr
    assert "mixprec torch.float32" in done.stderr
    assert json.loads(done.stdout)["ranks"][0]["steps"] == 3


def test_without_it_nothing_is_exchanged(tmp_path):
    """The same script alone has PyTorch's scaler and list; --policy without --engine is refused."""
    done = run(tmp_path, "--no-incidents")
    assert "torch torch.bfloat16" in done.stdout, done.stderr
    refused = run(tmp_path, "--policy", "uniform")
    assert refused.returncode == 2
    assert "accepted is given together with --engine" in refused.stderr
