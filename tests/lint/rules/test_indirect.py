"""A misuse is named through whatever stands between: a branch of imports, a stack of contexts, a partial, a table."""

from __future__ import annotations

import re

import pytest

from mixprec.lint import Project, lint_source
from mixprec.records import Severity

SETUP = """\
import contextlib
import functools
import torch
import torch.nn.functional as F
from torch import nn

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
"""

FALLBACK = """\
import torch

try:
    from torch.amp import autocast as region

    def amp(device, enabled):
        return region(FIRST)MARK
except ImportError:
    from torch.cuda.amp import autocast as region

    def amp(device, enabled):
        return region(enabled=enabled)
"""

SEVERAL = """
parts = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 1)})
optimizers = {name: torch.optim.Adam(parts[name].parameters()) for name in names}
for x in loader:
    for one in optimizers.values():
        one.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = parts["b"](parts["a"](x)).mean()
    scaler.scale(loss).backward()
    for one in optimizers.values():
        scaler.step(one)
        IN
    AFTER
"""

STACK = """
def backward(x):
    loss = F.mse_loss(net(x).float(), x)
    scaler.scale(loss).backward()MARK
    return loss.detach()


for x in loader:
    optimizer.zero_grad()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast("cuda", dtype=torch.float16))
        CLOSE
        loss = CALL
    AFTER
    scaler.step(optimizer)
    scaler.update()
"""

PARTIAL = """
class Learner:
    def __init__(self, args):
        self.net = nn.Linear(8, 1).cuda()
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=args.lr)
        self.region = functools.partial(torch.autocast, device_type="cuda", dtype=torch.DTYPE, enabled=args.amp)
        self.scaler = torch.amp.GradScaler("cuda", enabled=args.amp)MARK

    def loss(self, x, y):
        with self.region():
            return F.mse_loss(self.net(x), y)

    def update(self, x, y):
        self.optim.zero_grad()
        self.scaler.scale(self.loss(x, y)).backward()
        self.scaler.step(self.optim)
        self.scaler.update()
"""

HEADS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.critic = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        PRODUCT

model = Net().cuda()
with torch.autocast("cuda", dtype=torch.float16):
    y = model(torch.randn(4, 8).cuda())
"""

ACCELERATE = """
import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="DTYPE", gradient_accumulation_steps=4)
model, critic = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    with accelerator.accumulate(model):
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        UNSCALE
        if accelerator.sync_gradients:
            given = WHOSE.parameters()
            CLIPPER.clip_grad_norm_(given, 1.0)MARK
        optimizer.step()
        optimizer.zero_grad()
"""

LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer


class Gan(LightningModule):
    automatic_optimization = False

    def __init__(self):
        super().__init__()
        self.d, self.g = torch.nn.Linear(8, 1), torch.nn.Linear(8, 8)

    def training_step(self, batch, index):
        first, second = self.optimizers()
        loss = self.d(self.g(batch)).mean()
        first.zero_grad()
        BACKWARD
        first.step()

    def HOOK(self, loss):
        loss.backward()


Trainer(precision="DTYPE", accelerator="DEVICE").fit(Gan(), loader)
"""

CHOSEN = """
import contextlib
import torch

CFG = {"precision": "DEFAULT", "lr": 0.1}
PRECISIONS = {"fp32": None, TABLE}


def region(cfg):
    dtype = PRECISIONS[cfg["precision"]]
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast("cuda", dtype=dtype)MARK


def train(cfg):
    net = torch.nn.Linear(8, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=cfg["lr"])
    for x, y in loader:
        with region(cfg):
            loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


CFG.update(read())
train(CFG)
"""

MASKS = """
import torch
from torch import nn


def extended(keep):
    mask = (keep > 0.5)[:, None, None, :].to(torch.float32)
    return (1.0 - mask) * torch.finfo(torch.LEAST).min


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, bias):
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        return (scores + bias.to(scores.dtype)).softmax(-1)MARK


net = Attention().cuda()
with torch.autocast("cuda", dtype=torch.float16):
    weights = net(torch.randn(2, 4, 8).cuda(), extended(torch.rand(2, 4).cuda()))
"""

LOSSES = """
import torch
from torch import nn


class Focal(nn.Module):
    def forward(self, logits, y):
        p = torch.sigmoid(logits)CAST
        return -(y * torch.log(p + 1e-8)).mean()MARK


class Sum(nn.Module):
    def __init__(self, **parts):
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def forward(self, logits, y):
        values = {name: part(logits, y) for name, part in self.parts.items()}
        return sum(values.values())


net, loss = nn.Linear(8, 1).cuda(), Sum(focal=Focal(), bce=nn.BCEWithLogitsLoss())
with torch.autocast("cuda", dtype=torch.float16):
    value = loss(net(torch.randn(4, 8).cuda()), torch.ones(4, 1).cuda())
"""

CRITERIA = """
import argparse
import torch
from torch import nn

LOSSES = {"bce": nn.BCELoss, "mse": nn.MSELoss}


class Task:
    def __init__(self, args):
        self.net = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid()).cuda()
        self.criterion = LOSSES[args.loss]()

    def loss(self, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            p = self.net(x)
            return self.criterion(p, y)MARK


parser = argparse.ArgumentParser()
parser.add_argument("--loss", choices=sorted(LOSSES), default="DEFAULT")
Task(parser.parse_args()).loss(torch.randn(4, 8).cuda(), torch.ones(4, 1).cuda())
"""

AVERAGES = """
import torch


class Averages:
    def __init__(self, module, decay=DECAY, dtype=torch.DTYPE):
        self.decay = decay
        self.dtype = dtype
        self.shadow = {n: p.detach().clone().to(dtype) for n, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, module):
        for n, p in module.named_parameters():
            self.shadow[n].mul_(self.decay).add_(p.detach().to(self.dtype), alpha=1.0 - self.decay)MARK


def main(decay):
    net = torch.nn.Linear(8, 1)
    Averages(net, decay).update(net)


main(arguments().decay)
"""


def filled(template: str, **parts: str) -> str:
    for name, text in parts.items():
        template = template.replace(name, text)
    return template


FAULTS = {
    "a device that the branch for new versions leaves out": filled(
        FALLBACK, FIRST="dtype=torch.float16, enabled=enabled", MARK="  # MP081"
    ),
    "an update in a loop over optimizers is named once": SETUP
    + filled(SEVERAL, IN="scaler.update()  # MP006", AFTER="pass"),
    "backward in a function that is called under a stack of contexts": SETUP
    + filled(STACK, MARK="  # MP083", CLOSE="pass", CALL="backward(x)", AFTER="pass"),
    "a scaler beside a partial of a bfloat16 region": SETUP + filled(PARTIAL, DTYPE="bfloat16", MARK="  # MP019"),
    "operands converted in front of a product": SETUP
    + filled(
        HEADS, PRODUCT="q = self.body(x).float()\n        q = q / 8\n        return q @ self.head.weight.t()  # MP168"
    ),
    "an operand converted where a layer is called": SETUP
    + filled(HEADS, PRODUCT="h = self.body(x)\n        return self.head(h.float())  # MP168"),
    "scaled gradients of Accelerate that torch clips": filled(
        ACCELERATE, DTYPE="fp16", UNSCALE="pass", WHOSE="model", CLIPPER="torch.nn.utils", MARK="  # MP002"
    ),
    "a loss that Lightning has not scaled": filled(
        LIGHTNING, DTYPE="16-mixed", DEVICE="gpu", BACKWARD="loss.backward(retain_graph=True)  # MP004", HOOK="backward"
    ),
    "a float16 region that a table gives, without a scaler": filled(
        CHOSEN, DEFAULT="fp32", TABLE='"fp16": torch.float16', MARK="  # MP001"
    ),
    "a float16 region that a table gives by default, without a scaler": filled(
        CHOSEN, DEFAULT="fp16", TABLE='"fp16": torch.float16, "bf16": torch.bfloat16', MARK="  # MP001"
    ),
    "a float32 mask that another function converts": filled(MASKS, LEAST="float32", MARK="  # MP042"),
    "an eps in one of the losses that a module sums": filled(LOSSES, CAST="", MARK="  # MP047"),
    "a loss that an option picks by default": filled(CRITERIA, DEFAULT="bce", MARK="  # MP049"),
    "an average that is bfloat16 by default": filled(AVERAGES, DECAY="0.999", DTYPE="bfloat16", MARK="  # MP064"),
}

HEALTHY = {
    "each branch of imports calls what it imports": filled(
        FALLBACK, FIRST="device, dtype=torch.float16, enabled=enabled", MARK=""
    ),
    "one update after a loop over optimizers": SETUP + filled(SEVERAL, IN="pass", AFTER="scaler.update()"),
    "backward behind the end of a stack of contexts": SETUP
    + filled(STACK, MARK="", CLOSE="pass", CALL="F.mse_loss(net(x).float(), x)", AFTER="scaler.scale(loss).backward()"),
    "backward under a stack that was closed before": SETUP
    + filled(
        STACK,
        MARK="",
        CLOSE="loss = F.mse_loss(net(x).float(), x)\n        stack.close()",
        CALL="scaler.scale(loss).backward()",
        AFTER="pass",
    ),
    "a scaler beside a partial of a float16 region": SETUP + filled(PARTIAL, DTYPE="float16", MARK=""),
    "a network's float32 output that the next network takes": SETUP
    + filled(HEADS, PRODUCT="fake = self.body(x).float()\n        return self.critic(fake)"),
    "a float32 output that a function multiplies": SETUP
    + "\n\ndef logits(a, b):\n    return a @ b.t()\n"
    + filled(HEADS, PRODUCT="return logits(self.body(x).float(), self.body(x).float())"),
    "Accelerate clips what it has scaled": filled(
        ACCELERATE, DTYPE="fp16", UNSCALE="pass", WHOSE="model", CLIPPER="accelerator", MARK=""
    ),
    "Accelerate scales nothing in bf16": filled(
        ACCELERATE, DTYPE="bf16", UNSCALE="pass", WHOSE="model", CLIPPER="torch.nn.utils", MARK=""
    ),
    "Accelerate was asked to unscale": filled(
        ACCELERATE,
        DTYPE="fp16",
        UNSCALE="accelerator.unscale_gradients()",
        WHOSE="model",
        CLIPPER="torch.nn.utils",
        MARK="",
    ),
    "torch clips what Accelerate does not know": filled(
        ACCELERATE, DTYPE="fp16", UNSCALE="pass", WHOSE="critic", CLIPPER="torch.nn.utils", MARK=""
    ),
    "Lightning scales by hand": filled(
        LIGHTNING, DTYPE="16-mixed", DEVICE="gpu", BACKWARD="self.manual_backward(loss)", HOOK="backward"
    ),
    "Lightning scales nothing in bfloat16": filled(
        LIGHTNING, DTYPE="bf16-mixed", DEVICE="gpu", BACKWARD="loss.backward()", HOOK="backward"
    ),
    "Lightning scales nothing on the CPU": filled(
        LIGHTNING, DTYPE="16-mixed", DEVICE="cpu", BACKWARD="loss.backward()", HOOK="backward"
    ),
    "a bfloat16 region that a table gives, without a scaler": filled(
        CHOSEN, DEFAULT="bf16", TABLE='"bf16": torch.bfloat16', MARK=""
    ),
    "a bfloat16 region that a table gives by default, without a scaler": filled(
        CHOSEN, DEFAULT="bf16", TABLE='"fp16": torch.float16, "bf16": torch.bfloat16', MARK=""
    ),
    "a float16 region that a table gives, in a file that imports from its project": "from .amp import attach\n"
    + filled(CHOSEN, DEFAULT="fp16", TABLE='"fp16": torch.float16', MARK=""),
    "a mask of the dtype that it is converted to": filled(MASKS, LEAST="float16", MARK=""),
    "an eps beside a probability in float32": filled(LOSSES, CAST=".float()", MARK=""),
    "a loss that an option picks by default, and autocast takes": filled(CRITERIA, DEFAULT="mse", MARK=""),
    "an average that is float32 by default": filled(AVERAGES, DECAY="0.999", DTYPE="float32", MARK=""),
    "an average that moves by default": filled(AVERAGES, DECAY="0.9", DTYPE="bfloat16", MARK=""),
}

MARK = re.compile(r"# (MP\d{3})")


def warned(source: str) -> list[tuple[int, str]]:
    found = lint_source(source, "train.py", project=Project())
    return [(f.location.line, f.code) for f in found if f.severity is not Severity.INFO and f.code != "MP202"]


@pytest.mark.parametrize("name", FAULTS)
def test_exactly_what_is_marked_is_named(name):
    """The misuse is named on its line, once, and nothing else is."""
    lines = enumerate(FAULTS[name].splitlines(), 1)
    wanted = [(number, match.group(1)) for number, line in lines if (match := MARK.search(line))]

    assert wanted
    assert warned(FAULTS[name]) == wanted


@pytest.mark.parametrize("name", HEALTHY)
def test_its_sound_neighbour_is_left_alone(name):
    """The same structure with nothing wrong in it."""
    assert warned(HEALTHY[name]) == []
