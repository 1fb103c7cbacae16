"""A fault planted in a stack's script is found by `mixprec doctor`, whose controls run in the stack too."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from mixprec import GradScaler

pytestmark = [pytest.mark.integrations, pytest.mark.slow]

DATA = """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.randn(512, 16)
y = x[:, :4] * 0.5
"""

SCRIPTS = {
    "accelerate": """\
from mixprec.integrations.accelerate import MixprecAccelerator
accelerator = MixprecAccelerator(mixed_precision="fp16", cpu=True)
model, optimizer = accelerator.prepare(model, optimizer)
for a, b in zip(x.split(32), y.split(32)):
    loss = nn.functional.mse_loss(model(a), b)
    accelerator.backward(loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # and not accelerator.clip_grad_norm_
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
""",
    "lightning": """\
from lightning.fabric import Fabric
from mixprec.integrations.lightning import MixprecFabricPrecision
fabric = Fabric(accelerator="cpu", devices=1, plugins=[MixprecFabricPrecision("fp16-mixed", "cpu")])
model, optimizer = fabric.setup(model, optimizer)
for a, b in zip(x.split(32), y.split(32)):
    loss = nn.functional.mse_loss(model(a).float(), b)
    fabric.backward(loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # and not fabric.clip_gradients
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
""",
}


@pytest.mark.parametrize("package", SCRIPTS)
def test_clipping_around_the_stack_is_found(package, tmp_path):
    """Scaled gradients are clipped by PyTorch's function instead of the stack's: MP002, at its line, and the float32
    control runs.
    """
    pytest.importorskip(package, reason=f"extra: {package}")
    (tmp_path / "train.py").write_text(DATA + SCRIPTS[package])
    options = ["--fast", "--steps", "16", "--time", "200s", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "mixprec", "doctor", *options, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    found = json.loads(done.stdout)
    assert found["verdict"]["code"] == "MP002", done.stderr
    line = (DATA + SCRIPTS[package]).splitlines()[found["verdict"]["location"]["line"] - 1]
    assert "nn.utils.clip_grad_norm_" in line
    assert all(arm["ended"] != "crashed" and arm["steps"] for arm in found["arms"])


def test_a_scaler_that_an_intervention_switches_off_is_off(monkeypatch):
    """Where torch's constructor is told to disable every scaler, ours is disabled and works; else it is not."""
    assert GradScaler("cpu").is_enabled()
    original = torch.amp.GradScaler.__init__

    def disabled(self, *args, **kwargs):
        original(self, *args, **{**kwargs, "enabled": False})

    monkeypatch.setattr(torch.amp.GradScaler, "__init__", disabled)
    scaler = GradScaler("cpu")
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], 0.5)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not scaler.is_enabled()
    assert torch.equal(parameter.detach(), torch.full((2,), 0.5))
