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


def doctor(folder, steps, *command):
    """What `mixprec doctor` says of `command` in `folder`."""
    options = ["--fast", "--steps", steps, "--time", "200s", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "mixprec", "doctor", *options, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    found = json.loads(done.stdout)
    assert found["verdict"] is not None, done.stderr
    return found


@pytest.mark.parametrize("package", SCRIPTS)
def test_clipping_around_the_stack_is_found(package, tmp_path):
    """Scaled gradients are clipped by PyTorch's function instead of the stack's: MP002, at its line, and the float32
    control runs.
    """
    pytest.importorskip(package, reason=f"extra: {package}")
    (tmp_path / "train.py").write_text(DATA + SCRIPTS[package])
    found = doctor(tmp_path, "16", "train.py")
    assert found["verdict"]["code"] == "MP002"
    line = (DATA + SCRIPTS[package]).splitlines()[found["verdict"]["location"]["line"] - 1]
    assert "nn.utils.clip_grad_norm_" in line
    assert all(arm["ended"] != "crashed" and arm["steps"] for arm in found["arms"])


MODEL = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
        self.down = nn.Linear(64, 16)
        nn.init.constant_(self.up[0].weight, 30.0)
        nn.init.constant_(self.down.weight, 30.0)
        self.out = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 4))

    def forward(self, x):
        h = self.up(x)
        return self.out(x + self.down(h))  # beyond 65504 in float16
"""

OVERFLOWING = {
    "fsdp1": """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from mixprec import ShardedGradScaler
from model import Net

torch.distributed.init_process_group("gloo")
torch.manual_seed(torch.distributed.get_rank())
half = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float32)
model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), mixed_precision=half, use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
scaler = ShardedGradScaler("cpu")
for step in range(8):
    loss = model(torch.rand(8, 16)).float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.distributed.destroy_process_group()
""",
    "fsdp2": """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from mixprec import ShardedGradScaler
from model import Net

torch.distributed.init_process_group("gloo")
torch.manual_seed(torch.distributed.get_rank())
half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
model = fully_shard(Net(), mesh=init_device_mesh("cpu", (2,)), mp_policy=half)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
scaler = ShardedGradScaler("cpu")
for step in range(8):
    loss = model(torch.rand(8, 16)).float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.distributed.destroy_process_group()
""",
    "deepspeed": """\
import os
import tempfile

os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from model import Net

torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
get_accelerator().is_fp16_supported = lambda: True
torch.manual_seed(0)
model = Net()
config = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "fp16": {"enabled": True, "initial_scale_power": 16},
}
engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), 1e-3), config=config)[0]
for step in range(8):
    loss = engine(torch.rand(8, 16).half()).float().square().mean()
    engine.backward(loss)
    engine.step()
torch.distributed.destroy_process_group()
""",
}


@pytest.mark.distributed
@pytest.mark.parametrize("stack", OVERFLOWING)
def test_an_overflow_is_found_through_the_wrapper(stack, tmp_path):
    """FSDP of either kind on two ranks under torchrun, and DeepSpeed's engine, cast the weights: the verdict is the
    overflow at the user's line and module, and float32 is the control.
    """
    if stack == "deepspeed":
        pytest.importorskip(stack, reason=f"extra: {stack}")
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(OVERFLOWING[stack])
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    found = doctor(tmp_path, "4", *([] if stack == "deepspeed" else torchrun), "train.py")

    where = found["verdict"]["location"]
    assert found["verdict"]["code"] == "MP030"
    assert where["file"].endswith("model.py")
    assert "self.down(h)" in MODEL.splitlines()[where["line"] - 1]
    assert where["module"].endswith("down")
    assert all(arm["ended"] != "crashed" for arm in found["arms"])
    assert found["arms"][0]["ranks"] == (1 if stack == "deepspeed" else 2)


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
