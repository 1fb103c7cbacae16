"""What is called through another name is followed where the text says what it is, and taken for anything elsewhere."""

from __future__ import annotations

import re

import pytest

from mixprec.lint import lint_source
from mixprec.lint._view import FileView
from mixprec.lint.protocol import trace
from mixprec.records import Severity

HEALTHY = {
    "a function picked from a dict": """\
import torch
import torch.nn.functional as F
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


def a(loss):
    scaler.scale(loss).backward()


def b(loss):
    scaler.scale(2 * loss).backward()


TABLE = {"a": a, "b": b}
for n, x in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(x), x)
    opt.zero_grad()
    TABLE["a" if n % 2 else "b"](loss)
    scaler.step(opt)
    scaler.update()
""",
    "a method fetched by its name": """\
import torch
from torch import nn


class T:
    def __init__(self):
        self.net = nn.Linear(4, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def d_step(self, x):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.net(x).mean()
        self.scaler.scale(loss).backward()

    def g_step(self, x):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.net(x).sum()
        self.scaler.scale(loss).backward()

    def run(self, loader, kind):
        for x in loader:
            self.opt.zero_grad()
            getattr(self, f"{kind}_step")(x)
            self.scaler.unscale_(self.opt)
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.scaler.step(self.opt)
            self.scaler.update()


T().run(loader, "d")
""",
    "a partial call": """\
import functools, torch
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


def back(loss, s, weight=1.0):
    s.scale(loss * weight).backward()


do = functools.partial(back, s=scaler, weight=0.5)
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    do(loss)
    scaler.step(opt)
    scaler.update()
""",
    "functions kept in a list": """\
import torch
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
hooks = []


def finish(loss):
    scaler.update()


hooks.append(finish)
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    for hook in hooks:
        hook(loss)
""",
    "decorators that step, and that only look on": """\
import functools, torch, time
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


def stepping(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        opt.zero_grad()
        loss = fn(*args, **kwargs)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss.item()

    return wrapper


@stepping
def train(x):
    with torch.autocast("cuda", dtype=torch.float16):
        return model(x).mean()


def timed(label):
    def deco(fn):
        def inner(*a, **k):
            t = time.time()
            out = fn(*a, **k)
            print(label, time.time() - t)
            return out

        return inner

    return deco


@timed("step")
def other(x):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()


for x in loader:
    train(x)
    other(x)
""",
    "lambdas, one for each choice": """\
import torch
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
use_amp = True
scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
backward = (lambda l: scaler.scale(l).backward()) if use_amp else (lambda l: l.backward())
step = lambda: (scaler.step(opt), scaler.update())
for x in loader:
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
        loss = model(x).mean()
    backward(loss)
    step()
""",
    "an object of a library that was given scaler and optimizer": """\
import torch
from torch import nn
from mylib import Engine

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
engine = Engine(model, opt, scaler)
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    engine.run(loss)
    scaler.step(opt)
    scaler.update()
""",
    "a library function that is given the scaled loss": """\
import torch
from torch import nn
from mylib import propagate

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    propagate(scaler.scale(loss))
    scaler.step(opt)
    scaler.update()
""",
    "a closure": """\
import torch
from torch import nn


def make_step(net, optimizer, amp):
    grad_scaler = torch.amp.GradScaler("cuda", enabled=amp)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
            loss = nn.functional.mse_loss(net(x), y)
        grad_scaler.scale(loss).backward()
        grad_scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        grad_scaler.step(optimizer)
        grad_scaler.update()
        return loss.detach()

    return step


net = nn.Linear(4, 4)
step = make_step(net, torch.optim.Adam(net.parameters()), True)
for x, y in loader:
    print(step(x, y).item())
""",
    "methods kept in a list": """\
import torch
from torch import nn


class Runner:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters())
        self.amp_scaler = torch.amp.GradScaler("cuda")
        self.stages = [self._forward, self._backward, self._apply]

    def _forward(self, state):
        with torch.autocast("cuda", dtype=torch.float16):
            state["loss"] = self.net(state["x"]).mean()

    def _backward(self, state):
        self.amp_scaler.scale(state["loss"]).backward()

    def _apply(self, state):
        self.amp_scaler.step(self.optimizer)
        self.amp_scaler.update()
        self.optimizer.zero_grad()

    def fit(self, loader):
        for x in loader:
            state = {"x": x}
            for stage in self.stages:
                stage(state)


Runner(nn.Linear(3, 1)).fit(loader)
""",
    "map": """\
import torch
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


def micro(x):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean() / 4
    scaler.scale(loss).backward()
    return loss.item()


for batch in loader:
    opt.zero_grad()
    total = sum(map(micro, batch.chunk(4)))
    scaler.step(opt)
    scaler.update()
""",
    "handlers of events": """\
import torch
from torch import nn


class Engine:
    def __init__(self):
        self.handlers = {}

    def on(self, name):
        def register(fn):
            self.handlers.setdefault(name, []).append(fn)
            return fn

        return register

    def fire(self, name, *args):
        for fn in self.handlers.get(name, []):
            fn(*args)


engine = Engine()
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


@engine.on("backward")
def do_backward(loss):
    scaler.scale(loss).backward()


@engine.on("step")
def do_step():
    scaler.step(opt)
    scaler.update()


for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    engine.fire("backward", loss)
    engine.fire("step")
""",
    "scaler and optimizer in dicts": """\
import torch
from torch import nn


class T:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = nn.Linear(3, 1)
        self.optim = {"net": torch.optim.Adam(self.net.parameters())}
        self.scalers = {"net": torch.amp.GradScaler("cuda")}

    def step(self, x):
        s = self.scalers["net"]
        o = self.optim["net"]
        o.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.net(x).mean()
        s.scale(loss).backward()
        s.unscale_(o)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1)
        s.step(o)
        s.update()


t = T(None)
for x in loader:
    t.step(x)
""",
    "one of two functions, chosen where it is called": """\

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(10, 40), nn.GELU(), nn.Linear(40, 1))
optim = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)


def warm(loss):
    scaler.scale(loss).backward()


def usual(loss):
    scaler.scale(loss).backward()


for n in range(60):
    x = torch.randn(32, 10)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss(model(x), x[:, :1] * x[:, 1:2])
    optim.zero_grad()
    (warm if n == 0 else usual)(loss)
    scaler.step(optim)
    scaler.update()
print("loss", loss.item())
""",
    "a scaler of two names": """\

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
main_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
aux_scaler = main_scaler
for _ in range(20):
    x = torch.randn(10, 5)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), x[:, :2].argmax(1))
    opt.zero_grad()
    main_scaler.scale(loss).backward()
    aux_scaler.step(opt)
    aux_scaler.update()
    print(loss.item())
""",
}

SETUP = """\
import functools
import torch
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")


def loss_of(x):
    with torch.autocast("cuda", dtype=torch.float16):
        return model(x).mean()


"""

FAULTS = {
    "in a closure": """\
def make_step(optimizer, scaler):
    def step(x):
        optimizer.zero_grad()
        scaler.scale(loss_of(x)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # MP002
        scaler.step(optimizer)
        scaler.update()

    return step


step = make_step(opt, scaler)
for x in loader:
    step(x)
""",
    "under a decorator that only looks on": """\
def timed(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        out = fn(*args, **kwargs)
        print(out)
        return out

    return wrapper


@timed
def train(x):
    opt.zero_grad()
    scaler.scale(loss_of(x)).backward()
    scaler.step(opt)  # MP005


for x in loader:
    train(x)
""",
    "in a lambda": """\
step = lambda: scaler.step(opt)  # MP005
for x in loader:
    opt.zero_grad()
    scaler.scale(loss_of(x)).backward()
    step()
""",
    "in a partial call": """\
def back(loss, s, weight):
    (loss * weight).backward()  # MP004


do = functools.partial(back, s=scaler, weight=0.5)
for x in loader:
    opt.zero_grad()
    do(loss_of(x))
    scaler.step(opt)
    scaler.update()
""",
    "in one of two functions": """\
def warm(loss):
    scaler.scale(loss).backward()


def usual(loss):
    loss.backward()  # MP004


for n, x in enumerate(loader):
    opt.zero_grad()
    (warm if n == 0 else usual)(loss_of(x))
    scaler.step(opt)
    scaler.update()
""",
    "in a method of a list": """\
class Runner:
    def __init__(self):
        self.stages = [self.backward, self.apply]

    def backward(self, x):
        scaler.scale(loss_of(x)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # MP002

    def apply(self, x):
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()

    def fit(self, loader):
        for x in loader:
            for stage in self.stages:
                stage(x)


Runner().fit(loader)
""",
    "in a generator expression": """\
def accumulate(x):
    scaler.scale(loss_of(x) / 4).backward()
    scaler.unscale_(opt)  # MP007


for batch in loader:
    opt.zero_grad()
    total = sum(accumulate(part) for part in batch.chunk(4))
    scaler.step(opt)
    scaler.update()
""",
    "in a list comprehension": """\
def train(n, x):
    if n % 10 == 0:
        opt.zero_grad()
    scaler.scale(loss_of(x)).backward()  # MP146
    scaler.step(opt)
    scaler.update()


history = [train(n, x) for n, x in enumerate(loader)]
""",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_call_through_another_name_is_no_missing_call(name):
    """Scripts that are right say nothing, however their functions are called."""
    assert [f for f in lint_source(HEALTHY[name], "train.py") if f.severity is not Severity.INFO] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_is_found_behind_another_name(name):
    """Where the text says what is called, the mistake in it is named on its line."""
    source = SETUP + FAULTS[name]
    wanted = [
        (number, match.group(1))
        for number, line in enumerate(source.splitlines(), 1)
        if (match := re.search(r"# (MP\d{3})", line))
    ]
    found = [f for f in lint_source(source, "train.py") if f.severity is not Severity.INFO]

    assert [(f.location.line, f.code) for f in found] == wanted


MANY = """\
def back(loss):
    scaler.scale(loss).backward()


for x in loader:
""" + "".join(
    f"""\
    back(loss_of(x[{place}]))
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
"""
    for place in range(14)
)


def test_a_call_that_is_walked_no_more_is_taken_for_anything():
    """A function is walked only so often; from then on its calls may have done whatever it does."""
    view = FileView("train.py", SETUP + MANY)

    assert [conclusion.kind for conclusion in view.memo(trace).conclusions] == []
