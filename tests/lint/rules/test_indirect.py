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
