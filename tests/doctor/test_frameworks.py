"""The same fault inside a framework's loop is found at the same line of the user's model."""

from __future__ import annotations

import os

import pytest

from mixprec._script import Command
from mixprec.doctor import examine_script

pytestmark = pytest.mark.slow

MODEL = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 128)
        self.down = nn.Linear(128, 32)
        with torch.no_grad():
            self.up.weight.mul_(gain)
            self.down.weight.mul_(gain)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(1.0), Block(500.0))
        self.out = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 1))

    def forward(self, x):
        return self.out(self.blocks(x))


def batches(size=8):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randn(64, 1))
    return torch.utils.data.DataLoader(data, batch_size=size)
"""

LOOP = """
for x, y in loader:
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

ACCELERATE = f"""
import torch
from torch import nn
from accelerate import Accelerator
from model import Net, batches

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = Accelerator(cpu=True).prepare(model, optimizer, batches())
scaler = torch.amp.GradScaler("cpu")
{LOOP}
"""

LIGHTNING = """
import torch
import lightning
from lightning.pytorch.plugins import MixedPrecision
from model import Net, batches


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.net(batch[0]).float(), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


precision = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
lightning.Trainer(max_epochs=1, accelerator="cpu", plugins=[precision], **quiet).fit(Module(), batches())
"""

TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments
from model import Net


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x, labels):
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.net(x)
        return {"loss": torch.nn.functional.mse_loss(out.float(), labels)}


torch.manual_seed(0)
data = [{"x": torch.randn(32), "labels": torch.randn(1)} for _ in range(64)]
given = dict(num_train_epochs=1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
Trainer(Module(), TrainingArguments("out", **given), train_dataset=data).train()
"""

DDP = f"""
import torch
from torch import nn
from model import Net, batches

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
loader = batches()
{LOOP}
torch.distributed.destroy_process_group()
"""


def examined(tmp_path, source, *launch):
    """The diagnosis of `source` beside `model.py`, and the line of `self.down` in it."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(source)
    command = Command((*launch, "train.py"), module=bool(launch))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = next(n for n, text in enumerate(MODEL.splitlines(), 1) if "return x + self.down" in text)
    return examine_script(command, steps=6, time_limit=280, fast=True, cwd=str(tmp_path), env=env), line


def check(found, line, module):
    assert found.verdict is not None, found.problem
    assert (found.verdict.code, found.verdict.location.line) == ("MP030", line)
    assert found.verdict.location.file.endswith("model.py")
    assert found.verdict.location.module == module
    assert not any(name.startswith("recorder_failed") for arm in found.examination.arms for name in arm.facts)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("package", "source", "module"),
    [
        ("accelerate", ACCELERATE, "blocks.1.down"),
        ("lightning", LIGHTNING, "blocks.1.down"),
        ("transformers", TRANSFORMERS, "net.blocks.1.down"),
    ],
)
def test_a_fault_in_a_frameworks_loop_is_found_at_its_line(tmp_path, package, source, module):
    """Whoever calls the model, the verdict is the overflow at the user's line and module."""
    pytest.importorskip(package)

    found, line = examined(tmp_path, source)

    check(found, line, module)
    assert all(len(arm.optimizers) == 1 for arm in found.examination.arms)


@pytest.mark.distributed
def test_a_fault_under_torchrun_is_found_at_its_line(tmp_path):
    """Both ranks are heard, and the verdict is the same as in one process."""
    found, line = examined(tmp_path, DDP, "torch.distributed.run", "--nproc-per-node", "2", "--standalone")

    check(found, line, "blocks.1.down")
    assert found.examination.arms[0].ranks == 2
