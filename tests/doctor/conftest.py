"""One arm of a script written in the test, with the real torch."""

from __future__ import annotations

import os
import tempfile
import textwrap

import pytest

from mixprec._script import Command
from mixprec.doctor._arm import ArmPlan, Intervention
from mixprec.doctor._run_arm import Script, run_arm

TRAINING = """
import os, sys
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def step():
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """`script(source, *argv, training=True)` -> Script; `training` puts a model and `step()` before the source."""

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # so that a test's processes carry its own mark

    def script(source, *argv, training=True, stdin=None):
        path = tmp_path / "train.py"
        path.write_text((TRAINING if training else "") + textwrap.dedent(source))
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return Script(Command(("train.py", *argv)), cwd=str(tmp_path), env=env, stdin=stdin)

    return script


@pytest.fixture
def arm(script):
    """`arm(source, steps=..., timeout=..., name=value, ...)` -> Arm, with the named interventions in place."""

    def arm(source, *argv, steps=None, timeout=60, trace=None, training=True, stdin=None, **changes):
        plan = ArmPlan("test", tuple(Intervention(*item) for item in changes.items()), steps, trace)
        return run_arm(script(source, *argv, training=training, stdin=stdin), plan, timeout)

    return arm
