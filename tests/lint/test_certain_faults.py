"""Mistakes that leave no doubt, as people write them, each beside the same script without it."""

from __future__ import annotations

import re

import pytest

from mixprec.lint import lint_source
from mixprec.records import Severity

FAULTS = {
    "no scaler": """\
import torch
from torch import nn

torch.manual_seed(3)


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 5, padding=2)
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, frames):
        return self.out(torch.tanh(self.stem(frames)))


def fit(net, optimizer, rounds, scaler=None):
    for _ in range(rounds):
        frames = torch.randn(2, 2, 128, 128)
        depth = (frames[:, :1] - frames[:, 1:]).tanh()
        with torch.autocast("cpu", dtype=torch.float16):  # MP001
            guess = net(frames)
        loss = 1e-4 * (guess.float() - depth).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


net = Depth()
fit(net, torch.optim.SGD(net.parameters(), lr=100.0), 25)
""",
    "disabled state": """\
import torch
from torch import nn


def scaler_for(precision):
    return torch.amp.GradScaler("cpu", enabled=precision == "16")


def train(net, opt, scaler, dtype):
    for _ in range(10):
        x = torch.randn(8, 4)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is torch.float16):
            loss = nn.functional.mse_loss(net(x), x)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return loss.item()


torch.manual_seed(0)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
old = scaler_for("32")
print(train(net, opt, old, torch.float32))
saved = old.state_dict()
new = scaler_for("16")
new.load_state_dict(saved)  # MP017
print(train(net, opt, new, torch.float16))
""",
    "parameter twice": """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk, left, right = nn.Linear(6, 24), nn.Linear(24, 2), nn.Linear(24, 3)
a = torch.optim.SGD([*trunk.parameters(), *left.parameters()], lr=0.1)
b = torch.optim.SGD([*trunk.parameters(), *right.parameters()], lr=0.1)  # MP028
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for _ in range(40):
    x = torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        h = torch.relu(trunk(x))
        loss = F.cross_entropy(left(h), x[:, :2].argmax(1)) + F.cross_entropy(right(h), x[:, 2:5].argmax(1))
    a.zero_grad()
    b.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(a)
    scaler.step(b)
    scaler.update()
print(loss.item())
""",
    "distance at zero": """\
import torch
from torch import nn

torch.manual_seed(0)


def pairwise(x):
    gap = (x[:, None] - x[None]).pow(2).sum(-1)
    return gap.sqrt()  # MP045


embed = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(embed.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for _ in range(40):
    x = torch.randn(12, 5)
    with torch.autocast("cpu", dtype=torch.float16):
        z = embed(x)
    loss = (pairwise(z.float()) - torch.cdist(x, x)).abs().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
""",
    "variance": """\
import torch
from torch import nn

torch.manual_seed(0)


class Contrast(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean  # MP067
        return (x - mean) / (variance + 1e-3).sqrt()


net = nn.Sequential(nn.Linear(6, 32), Contrast(), nn.Linear(32, 2))
with torch.no_grad():
    net[0].bias += 30.0
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(30):
    x = 0.3 * torch.randn(32, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), (x[:, 0] > 0).long())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
""",
    "counter": """\
import torch
from torch import nn

torch.manual_seed(0)


class Meter:
    def __init__(self):
        self.total = torch.zeros(2, dtype=torch.float16)

    def add(self, hits, count):
        self.total += torch.tensor([hits, count]).to(self.total.dtype)  # MP068

    def value(self):
        return (self.total[0] / self.total[1]).item()


net, meter = nn.Linear(6, 3), Meter()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for n in range(120):
    x = torch.randn(33, 6)
    y = x[:, :3].argmax(1)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    meter.add(int((logits.argmax(1) == y).sum()), len(y))
print(meter.value())
""",
    "half weights": """\
import torch
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 40), nn.ReLU())
        self.head = nn.Linear(40, 5)
        if half:
            self.backbone = self.backbone.half()  # MP084

    def forward(self, x):
        return self.head(self.backbone(x))


net = Classifier(half=True)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for _ in range(20):
    x = torch.randn(12, 20)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :5].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
""",
    "weights changed": """\
import copy

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 6))
mean = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)


def swap():
    with torch.no_grad():
        for p, q in zip(net.parameters(), mean.parameters()):
            old = p.clone()
            p.copy_(q)
            q.copy_(old)


for _ in range(40):
    x = torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), x.sin())
        swap()  # MP088
        teacher = net(x)
        swap()
    loss = loss + 0.1 * teacher.detach().float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(net.parameters(), mean.parameters()):
            q.lerp_(p, 0.1)
print(loss.item())
""",
    "detached silent": """\
import torch
from torch import nn

torch.manual_seed(0)


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 10)

    def forward(self, x):
        return self.body(x).tanh()


net = Probe()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(40):
    x = torch.randn(8, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = net(x)
    out = torch.as_tensor(h.detach().float().numpy()).requires_grad_()
    loss = (out.sum(1) - x[:, 0]).pow(2).mean()
    opt.zero_grad()
    loss.backward()  # MP144
    opt.step()
print(loss.item())
""",
    "uneven updates": """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def average(net):
    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def job(rank, address):
    dist.init_process_group("gloo", init_method="file://" + address, rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.Linear(10, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=32.0, growth_interval=4)
    for epoch in range(4):
        for _ in range(6 + 3 * rank):  # MP160
            x = torch.randn(8, 10)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        average(net)
        print(epoch, rank, scaler.get_scale(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(job, args=(os.path.join(tempfile.mkdtemp(), "meet"),), nprocs=2)
""",
    "half model": """\
import torch
from torch import nn

torch.manual_seed(0)


def load(path_dtype):
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4)).to(path_dtype)


def predict(net, rows):
    x = torch.tensor(rows)
    with torch.no_grad():
        return net(x).float().softmax(1)  # MP163


net = load(torch.bfloat16)
for _ in range(3):
    print(predict(net, [[0.1 * k for k in range(12)]]).argmax().item())
""",
    "step first": """\
import torch
from torch import nn

torch.manual_seed(0)


class Accumulate:
    def __init__(self, start=0):
        self.net = nn.Linear(6, 2)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        self.start = start

    def run(self, until):
        for n in range(self.start, until):
            if n > 0 and n % 2 == 0:
                self.scaler.step(self.opt)  # MP170
                self.scaler.update()
                self.opt.zero_grad()
            x = torch.randn(8, 6)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(self.net(x), x[:, :2].argmax(1)) / 2
            self.scaler.scale(loss).backward()
        print(until, loss.item())


Accumulate().run(6)
Accumulate(start=6).run(12)
""",
}

HEALTHY = {
    "no scaler": """\
import torch
from torch import nn

torch.manual_seed(3)


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 5, padding=2)
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, frames):
        return self.out(torch.tanh(self.stem(frames)))


def fit(net, optimizer, rounds, scaler=None):
    for _ in range(rounds):
        frames = torch.randn(2, 2, 128, 128)
        depth = (frames[:, :1] - frames[:, 1:]).tanh()
        with torch.autocast("cpu", dtype=torch.float16):
            guess = net(frames)
        loss = 1e-4 * (guess.float() - depth).abs().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print("loss", loss.item())


net = Depth()
fit(net, torch.optim.SGD(net.parameters(), lr=100.0), 25, torch.amp.GradScaler("cpu"))
""",
    "disabled state": """\
import torch
from torch import nn


def scaler_for(precision):
    return torch.amp.GradScaler("cpu", enabled=precision == "16")


def train(net, opt, scaler, dtype):
    for _ in range(10):
        x = torch.randn(8, 4)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is torch.float16):
            loss = nn.functional.mse_loss(net(x), x)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return loss.item()


torch.manual_seed(0)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
old = scaler_for("32")
print(train(net, opt, old, torch.float32))
saved = old.state_dict()
new = scaler_for("16")
if saved:
    new.load_state_dict(saved)
print(train(net, opt, new, torch.float16))
""",
    "parameter twice": """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk, left, right = nn.Linear(6, 24), nn.Linear(24, 2), nn.Linear(24, 3)
a = torch.optim.SGD([*trunk.parameters(), *left.parameters()], lr=0.1)
b = torch.optim.SGD(right.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for _ in range(40):
    x = torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        h = torch.relu(trunk(x))
        loss = F.cross_entropy(left(h), x[:, :2].argmax(1)) + F.cross_entropy(right(h), x[:, 2:5].argmax(1))
    a.zero_grad()
    b.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(a)
    scaler.step(b)
    scaler.update()
print(loss.item())
""",
    "distance at zero": """\
import torch
from torch import nn

torch.manual_seed(0)


def pairwise(x):
    gap = (x[:, None] - x[None]).pow(2).sum(-1)
    return (gap + 1e-6).sqrt()


embed = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(embed.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for _ in range(40):
    x = torch.randn(12, 5)
    with torch.autocast("cpu", dtype=torch.float16):
        z = embed(x)
    loss = (pairwise(z.float()) - torch.cdist(x, x)).abs().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
""",
    "variance": """\
import torch
from torch import nn

torch.manual_seed(0)


class Contrast(nn.Module):
    def forward(self, x):
        x = x.float()
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) / (variance + 1e-3).sqrt()


net = nn.Sequential(nn.Linear(6, 32), Contrast(), nn.Linear(32, 2))
with torch.no_grad():
    net[0].bias += 30.0
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(30):
    x = 0.3 * torch.randn(32, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), (x[:, 0] > 0).long())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
""",
    "counter": """\
import torch
from torch import nn

torch.manual_seed(0)


class Meter:
    def __init__(self):
        self.total = torch.zeros(2, dtype=torch.float64)

    def add(self, hits, count):
        self.total += torch.tensor([hits, count]).to(self.total.dtype)

    def value(self):
        return (self.total[0] / self.total[1]).item()


net, meter = nn.Linear(6, 3), Meter()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for n in range(120):
    x = torch.randn(33, 6)
    y = x[:, :3].argmax(1)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    meter.add(int((logits.argmax(1) == y).sum()), len(y))
print(meter.value())
""",
    "half weights": """\
import torch
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 40), nn.ReLU())
        self.head = nn.Linear(40, 5)
        if half:
            pass  # autocast does the rest

    def forward(self, x):
        return self.head(self.backbone(x))


net = Classifier(half=True)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for _ in range(20):
    x = torch.randn(12, 20)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :5].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
""",
    "weights changed": """\
import copy

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 6))
mean = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)


def swap():
    with torch.no_grad():
        for p, q in zip(net.parameters(), mean.parameters()):
            old = p.clone()
            p.copy_(q)
            q.copy_(old)


for _ in range(40):
    x = torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), x.sin())
    swap()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        teacher = net(x)
    swap()
    loss = loss + 0.1 * teacher.detach().float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(net.parameters(), mean.parameters()):
            q.lerp_(p, 0.1)
print(loss.item())
""",
    "detached silent": """\
import torch
from torch import nn

torch.manual_seed(0)


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 10)

    def forward(self, x):
        return self.body(x).tanh()


net = Probe()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(40):
    x = torch.randn(8, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = net(x)
    out = h.float()
    loss = (out.sum(1) - x[:, 0]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    "uneven updates": """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def average(net):
    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def job(rank, address):
    dist.init_process_group("gloo", init_method="file://" + address, rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.Linear(10, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=32.0, growth_interval=4)
    for epoch in range(4):
        for _ in range(6):
            x = torch.randn(8, 10)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        average(net)
        print(epoch, rank, scaler.get_scale(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(job, args=(os.path.join(tempfile.mkdtemp(), "meet"),), nprocs=2)
""",
    "half model": """\
import torch
from torch import nn

torch.manual_seed(0)


def load(path_dtype):
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4)).to(path_dtype)


def predict(net, rows):
    x = torch.tensor(rows).to(net[0].weight.dtype)
    with torch.no_grad():
        return net(x).float().softmax(1)


net = load(torch.bfloat16)
for _ in range(3):
    print(predict(net, [[0.1 * k for k in range(12)]]).argmax().item())
""",
    "step first": """\
import torch
from torch import nn

torch.manual_seed(0)


class Accumulate:
    def __init__(self, start=0):
        self.net = nn.Linear(6, 2)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        self.start = start

    def run(self, until):
        for n in range(self.start, until):
            x = torch.randn(8, 6)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(self.net(x), x[:, :2].argmax(1)) / 2
            self.scaler.scale(loss).backward()
            if n % 2 == 1:
                self.scaler.step(self.opt)
                self.scaler.update()
                self.opt.zero_grad()
        print(until, loss.item())


Accumulate().run(6)
Accumulate(start=6).run(12)
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_certain_mistake_is_named(name):
    """The code stands on the marked line; another one may stand beside it."""
    wanted = {
        (number, match.group(1))
        for number, line in enumerate(FAULTS[name].splitlines(), 1)
        if (match := re.search(r"# (MP\d{3})", line))
    }
    found = {(f.location.line, f.code) for f in lint_source(FAULTS[name], "train.py")}

    assert wanted
    assert wanted <= found


@pytest.mark.parametrize("name", HEALTHY)
def test_the_same_script_without_it_is_silent(name):
    """Nothing is said about a script that is right."""
    assert [f for f in lint_source(HEALTHY[name], "train.py") if f.severity is not Severity.INFO] == []
