"""Mistakes in every construct that the walk follows, each with its code marked on the line where it is said."""

from __future__ import annotations

import re

import pytest

from mixprec.lint import Project, lint_source
from mixprec.records import Severity

SETUP = """\
import torch
import torch.nn.functional as F

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
"""

FORWARD = """\
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
"""

FAULTS = {
    "clip between backward and step": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)  # MP002
    scaler.step(optimizer)
    scaler.update()
""",
    "clip before unscale in the guarded part": f"""{SETUP}
for i, (x, y) in enumerate(loader):
{FORWARD}
    scaler.scale(loss / 4).backward()
    if i % 4 == 3:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # MP002
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "norm measured on scaled gradients": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    norm = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5  # MP002
    scaler.step(optimizer)
    scaler.update()
""",
    "clip of one of two optimizers": """
import torch

def train(G, D, loader):
    opt_g = torch.optim.Adam(G.parameters())
    opt_d = torch.optim.Adam(D.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for real in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            fake = G(real)
            loss_d, loss_g = D(fake.detach()).mean(), -D(fake).mean()
        opt_d.zero_grad()
        scaler.scale(loss_d).backward(retain_graph=True)
        scaler.unscale_(opt_d)
        torch.nn.utils.clip_grad_norm_(D.parameters(), 1.0)
        scaler.step(opt_d)
        opt_g.zero_grad()
        scaler.scale(loss_g).backward()
        torch.nn.utils.clip_grad_norm_(G.parameters(), 1.0)  # MP002
        scaler.step(opt_g)
        scaler.update()
""",
    "own clipping helper": f"""{SETUP}
def clip_gradient(optimizer, limit):
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                param.grad.data.clamp_(-limit, limit)  # MP002


for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    clip_gradient(optimizer, 0.5)
    scaler.step(optimizer)
    scaler.update()
""",
    "optimizer stepped directly": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    optimizer.step()  # MP003
    scaler.update()
""",
    "optimizer stepped past the scaler": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # MP003
    scaler.update()
""",
    "both steps": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    optimizer.step()  # MP003
    scaler.update()
""",
    "second optimizer stepped directly": """
import torch

enc, head = build()
opt_enc = torch.optim.AdamW(enc.parameters())
opt_head = torch.optim.AdamW(head.parameters())
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt_enc.zero_grad()
    opt_head.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = head(enc(x)).mean()
    scaler.scale(loss).backward()
    scaler.step(opt_enc)
    opt_head.step()  # MP003
    scaler.update()
""",
    "scale missing": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    loss.backward()  # MP004
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "scale missing for one of two losses": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
        penalty = model.weight.square().sum()
    scaler.scale(loss).backward()
    penalty.backward()  # MP004
    scaler.step(optimizer)
    scaler.update()
""",
    "scale missing from the second iteration on": f"""{SETUP}
first = True
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    if first:
        scaler.scale(loss).backward()
        first = False
    else:
        loss.backward()  # MP004
    scaler.step(optimizer)
    scaler.update()
""",
    "update missing": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # MP005
""",
    "update missing with unscale": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)  # MP005
""",
    "update missing in one branch": f"""{SETUP}
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # MP005
    if args.verbose:
        scaler.update()
""",
    "update in the micro-batch, step under another name for the guard": f"""{SETUP}
for i, (x, y) in enumerate(loader):
    last = not (i + 1) % 4
{FORWARD}
    scaler.scale(loss / 4).backward()
    if last:
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()  # MP008
""",
    "update before the step": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.update()  # MP008
    scaler.step(optimizer)
""",
    "update between unscale and step": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.update()  # MP008
    scaler.step(optimizer)
""",
    "update between two optimizers": """
import torch

a, b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
opt_a, opt_b = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = b(a(x)).mean()
    opt_a.zero_grad()
    opt_b.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt_a)
    scaler.update()  # MP006
    scaler.step(opt_b)
    scaler.update()
""",
    "update in the loop over optimizers": """
import torch

optimizers = {"a": torch.optim.SGD(a.parameters(), lr=0.1), "b": torch.optim.SGD(b.parameters(), lr=0.1)}
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = b(a(x)).mean()
    for opt in optimizers.values():
        opt.zero_grad()
    scaler.scale(loss).backward()
    for opt in optimizers.values():
        scaler.step(opt)
        scaler.update()  # MP006
""",
    "unscale in every micro-batch": f"""{SETUP}
for i, (x, y) in enumerate(loader):
{FORWARD}
    scaler.scale(loss / 8).backward()
    scaler.unscale_(optimizer)  # MP007
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (i + 1) % 8 == 0 or i + 1 == len(loader):
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "unscale twice": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    log(sum(p.grad.norm() for p in model.parameters()))
    scaler.unscale_(optimizer)  # MP007
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "scaler in the loop over epochs": f"""{SETUP}
for epoch in range(3):
    scaler = torch.cuda.amp.GradScaler()  # MP016
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    "scaler in a helper that the loop calls": """
import torch

def make_scaler():
    return torch.amp.GradScaler("cuda")  # MP016

def train_one(model, optimizer, loader):
    scaler = make_scaler()
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    train_one(model, optimizer, loader)
""",
    "scaler in a function named for the epoch": """
import torch

def train_one_epoch(model, optimizer, loader, epoch):
    scaler = torch.amp.GradScaler("cuda")  # MP016
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    "scaler state not saved": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
state = dict(model=model.state_dict(), optimizer=optimizer.state_dict())  # MP017
torch.save(state, "last.pt")
""",
    "scaler state not restored": f"""{SETUP}
state = torch.load("last.pt")
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])  # MP017
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.save(
    {{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}}, "last.pt"
)
""",
    "bf16 by a module constant": f"""{SETUP}  # MP019@6
AMP_DTYPE = torch.bfloat16
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=AMP_DTYPE):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "bf16 by the default on CPU": """
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")  # MP019
for x in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu"):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "scheduler in every iteration": f"""{SETUP}
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()  # MP020
""",
    "scheduler before the step": f"""{SETUP}
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scheduler.step()  # MP213
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "scaled loss added up": f"""{SETUP}
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    total += loss.detach()  # MP023
""",
    "closure by position": f"""{SETUP}
def closure():
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    return loss


for x, y in loader:
    scaler.step(optimizer, closure)  # MP024
    scaler.update()
""",
    "SAM on scaled gradients": """
import torch
from sam import SAM

optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    optimizer.first_step(zero_grad=True)
    with torch.autocast("cuda", dtype=torch.float16):
        again = model(x)
    scaler.scale(again).backward()
    scaler.unscale_(optimizer)  # MP025
    optimizer.second_step(zero_grad=True)
    scaler.update()
""",
    "backward in the region": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()  # MP083
    scaler.step(optimizer)
    scaler.update()
""",
    "backward in a helper that is called in the region": f"""{SETUP}
def backward(loss):
    scaler.scale(loss).backward()  # MP083


for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
        backward(loss)
    scaler.step(optimizer)
    scaler.update()
""",
    "backward in a decorated function": f"""{SETUP}
@torch.autocast("cuda", dtype=torch.float16)
def step(x, y):
    loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()  # MP083


for x, y in loader:
    optimizer.zero_grad()
    step(x, y)
    scaler.step(optimizer)
    scaler.update()
""",
    "step in the region": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()  # MP083
        scaler.step(optimizer)  # MP088
    scaler.update()
""",
    "step and update left out": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    if not torch.isfinite(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)):  # MP142
        continue
    scaler.step(optimizer)
    scaler.update()
""",
    "step left out, nothing unscaled": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    if loss < 100:  # MP142
        scaler.step(optimizer)
    scaler.update()
""",
    "backward left out, step not": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    if y.numel():
        scaler.scale(loss).backward()
    scaler.step(optimizer)  # MP143
    scaler.update()
""",
    "loss made of numbers": f"""{SETUP}
for batch in loader:
    losses = [F.mse_loss(model(x), y).item() for x, y in batch]
    loss = torch.tensor(losses, requires_grad=True).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()  # MP144
    scaler.step(optimizer)
    scaler.update()
""",
    "zero_grad missing": f"""{SETUP}
for x, y in loader:
{FORWARD}
    scaler.scale(loss).backward()  # MP146
    scaler.step(optimizer)
    scaler.update()
""",
    "zero_grad missing in one branch": """
import torch

def train(model, optimizer, loader, scaler=None):
    for x in loader:
        if scaler is not None:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x)
            scaler.scale(loss).backward()  # MP146
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
""",
    "gradients of a left-out batch stay": f"""{SETUP}
for x, y in loader:
{FORWARD}
    scaler.scale(loss).backward()
    if not torch.isfinite(loss):  # MP146
        continue
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""",
    "one rank returns early": """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
scaler = torch.amp.GradScaler("cuda")


def train_step(model, optimizer, batch):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(batch)
    if loss != loss:  # MP161
        return None
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss
""",
    "zero_grad between backward and step": f"""{SETUP}
for x, y in loader:
{FORWARD}
    scaler.scale(loss).backward()
    optimizer.zero_grad()  # MP146
    scaler.step(optimizer)
    scaler.update()
""",
    "zero_grad in every micro-batch": f"""{SETUP}
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()  # MP146
{FORWARD}
    scaler.scale(loss / 4).backward()
    if (i + 1) % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
""",
    "first call is the step": f"""{SETUP}
for x, y in loader:
    scaler.step(optimizer)  # MP170
    scaler.update()
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
""",
    "scale of after the update": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.step(optimizer)
    scaler.update()
    history.append(scaled / scaler.get_scale())  # MP201
""",
    "unscale after the step": f"""{SETUP}
for x, y in loader:
    optimizer.zero_grad()
{FORWARD}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.unscale_(optimizer)  # MP214
    scaler.update()
""",
    "two scalers": """
import torch

class Trainer:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")
        self.grad_scaler = torch.amp.GradScaler("cuda")

    def fit(self, loader):
        for x in loader:
            self.opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.model(x)
            self.scaler.scale(loss).backward()
            self.grad_scaler.step(self.opt)  # MP018
            self.grad_scaler.update()
""",
    "float16 by CUDA's default, no scaler": """
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():  # MP001
        loss = model(x)
    loss.backward()
    optimizer.step()
""",
    "a training step as a method": """
import torch

class Learner:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters())
        self.scaler = torch.amp.GradScaler("cuda")

    def training_step(self, batch):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)  # MP005
        return loss
""",
    "names given by imports": """
from torch.cuda import amp
from torch.nn.utils import clip_grad_norm_ as clip
from torch.optim import Adam

opt = Adam(model.parameters())
gs = amp.GradScaler()
for x in loader:
    opt.zero_grad()
    with amp.autocast():
        loss = model(x)
    gs.scale(loss).backward()
    clip(model.parameters(), 1.0)  # MP002
    gs.step(opt)
    gs.update()
""",
    "names given by a star": """
import torch
from torch.cuda.amp import *

opt = torch.optim.Adam(model.parameters())
s = GradScaler()
for x in loader:
    opt.zero_grad()
    with autocast():
        loss = model(x)
    s.scale(loss).backward()
    opt.step()  # MP003
    s.update()
""",
}

MARK = re.compile(r"# (?P<code>MP\d{3})(?:@(?P<line>\d+))?")
OTHERS = {"MP031", "MP202"}
"""What rules of another kind say, truly, about these scripts."""


def expected(source: str) -> set[tuple[int, str]]:
    marks = ((n, mark) for n, line in enumerate(source.split("\n"), 1) for mark in MARK.finditer(line))
    return {(int(mark["line"] or n), mark["code"]) for n, mark in marks}


@pytest.mark.parametrize("name", FAULTS)
def test_exactly_what_is_marked_is_found(name):
    """Every marked fault is found at its line, and nothing else is warned about."""
    found = lint_source(FAULTS[name], "faulty.py", project=Project())
    warned = {(f.location.line, f.code) for f in found if f.severity is not Severity.INFO and f.code not in OTHERS}

    assert warned == expected(FAULTS[name])
    assert warned
