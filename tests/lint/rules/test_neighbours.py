"""What a rule says of a misuse it does not say of the sound code next to it, as found in widely used repositories."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mixprec.lint import lint_source

SCALER = """
import torch
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
"""


@dataclass(frozen=True)
class Pair:
    """A misuse with the code that names it, and a neighbour of which that rule says nothing."""

    code: str
    misuse: str
    neighbour: str


ZIPPED = """
import torch
a, b = torch.nn.Linear(2, 2).cuda(), torch.nn.Linear(2, 2).cuda()
optimizers = {"a": torch.optim.Adam(a.parameters()), "b": torch.optim.Adam(b.parameters())}
scalers = {FIRST: torch.amp.GradScaler("cuda"), SECOND: torch.amp.GradScaler("cuda")}
for x in loader:
    for name, model in (("a", a), ("b", b)):
        optimizers[name].zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().mean()
        scalers[name].scale(loss).backward()
    for scaler, optimizer in zip(scalers.values(), optimizers.values()):
        scaler.step(optimizer)
        scaler.update()
"""

HALVES = """
import torch
a, b = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 1).cuda()
first, second = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    first.zero_grad()
    second.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(b(a(x)), y)
    scaler.scale(loss).backward()
    scaler.unscale_(first)
    scaler.unscale_(second)
    scaler.step(first)
    STEP
    scaler.update()
"""

FACTOR = """
import torch


class Scale:
    value = 1024.0

    def backward(self, loss):
        (loss * self.value).backward()


model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scale = Scale()
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scale.backward(loss)
    for p in model.parameters():
        DIVIDE
    optimizer.step()
"""

RANKS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def agreed(finite):
    flag = finite.float()
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return not flag


model = DistributedDataParallel(torch.nn.Linear(8, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    if TEST:
        continue
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

PRODUCTS = """
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


weight = torch.ones(4, 4, requires_grad=True)
with torch.autocast("cuda", dtype=torch.float16):
    y = Product.apply(torch.ones(2, 4), weight)
"""

PENALTY = (
    SCALER
    + """
for x in loader:
    grads = torch.autograd.grad(scaler.scale(model(x).sum()), x, create_graph=True)[0]
"""
)

WINDOW = (
    SCALER
    + """
ACCUM = 4
for i, (x, y) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    BACKWARD
    if (i + 1) % ACCUM == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
)
TWO = (
    SCALER
    + """
critic = torch.nn.Linear(8, 1).cuda()
second = torch.optim.SGD(critic.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    second.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss, other = torch.nn.functional.mse_loss(model(x), y), critic(model(x)).mean()
    scaler.scale(loss).backward(retain_graph=True)
    kept = [p.grad.clone() for p in model.parameters()]
    FIRST
    for p, g in zip(model.parameters(), kept):
        p.grad = g
    scaler.step(optimizer)
    scaler.update()
    SECOND
    scaler.step(second)
    scaler.update()
"""
)
OTHER = "scaler.scale(other).backward()"

PAIRS = {
    "a loss divided by what a function returns is divided": Pair(
        "MP203",
        WINDOW.replace("BACKWARD", "scaler.scale(loss).backward()"),
        WINDOW.replace("BACKWARD", "scaler.scale(loss / left(i)).backward()"),
    ),
    "a loss divided in place is divided": Pair(
        "MP203",
        WINDOW.replace("BACKWARD", "scaler.scale(loss).backward()"),
        WINDOW.replace("BACKWARD", "loss /= left(i)\n    scaler.scale(loss).backward()"),
    ),
    "a scale that is only printed divides nothing": Pair(
        "MP022",
        PENALTY + "    loss = (grads.norm() - 1) ** 2\n    print(loss.item(), f'{scaler.get_scale()}')\n",
        PENALTY + "    loss = (grads.norm() / scaler.get_scale() - 1) ** 2\n    print(loss.item())\n",
    ),
    "metadata of a checkpoint is no checkpoint": Pair(
        "MP017",
        SCALER
        + """
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
torch.save(state, "last.pt")
""",
        SCALER
        + """
torch.save(model.state_dict(), "last.pt")
logger.log("last.pt", metadata={"epoch": 1, "optimizer": optimizer.state_dict()})
""",
    ),
    "a step shared by training and validation scales only while training": Pair(
        "MP205",
        SCALER
        + """
def run_step(x):
    return scaler.scale(model(x).mean())

with torch.no_grad():
    run_step(torch.ones(1, 8))
""",
        SCALER
        + """
def run_step(x, training):
    loss = model(x).mean()
    if training:
        loss = scaler.scale(loss)
        loss.backward()
    return loss

run_step(torch.ones(1, 8), flag)
with torch.no_grad():
    run_step(torch.ones(1, 8), flag)
""",
    ),
    "a trace that is not checked meets no cached casts": Pair(
        "MP171",
        """
import torch
model = torch.nn.Linear(8, 8)
with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
    traced = torch.jit.trace(model, torch.ones(1, 8), check_trace=True)
""",
        """
import torch
model = torch.nn.Linear(8, 8)
with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
    traced = torch.jit.trace(model, torch.ones(1, 8), check_trace=False)
""",
    ),
    "what is not differentiated has no gradient to lose": Pair(
        "MP046",
        """
import torch  # amp
def merged(value, count):
    return torch.where(count > 0, value / count, value)
merged(a, b).sum().backward()
""",
        """
import torch  # amp
@torch.no_grad()
def merged(value, count):
    return torch.where(count > 0, value / count, value)
with torch.inference_mode():
    torch.where(b > 0, a / b, a)
loss.backward()
""",
    ),
    "a word about the past runs no backward pass": Pair(
        "MP046",
        """
import torch  # amp
torch.where(b > 0, a / b, a).sum().backward()
""",
        """
import torch  # amp; kept for backward compatibility
torch.where(b > 0, a / b, a)
""",
    ),
    "a device that comes with the input may be any": Pair(
        "MP080",
        """
import torch
model = torch.nn.Linear(8, 8).to("cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda", dtype=torch.bfloat16):
    y = model(torch.ones(1, 8, device="cpu"))
""",
        """
import torch

class Embedding(torch.nn.Module):
    def forward(self, t):
        table = torch.arange(8, device="cpu")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.mlp(table.to(t.device) * t)

optimizer = torch.optim.SGD(Embedding().parameters(), lr=0.1)
""",
    ),
    "a region that is switched off does nothing anywhere": Pair(
        "MP080",
        """
import torch
model = torch.nn.Linear(8, 8).to("cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda", dtype=torch.bfloat16):
    y = model(torch.ones(1, 8, device="cpu"))
""",
        """
import torch
model = torch.nn.Linear(8, 8).to("cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda", enabled=False):
    y = model(torch.ones(1, 8, device="cpu"))
""",
    ),
    "scalers that are paired with optimizers in another order": Pair(
        "MP018",
        ZIPPED.replace("FIRST", '"b"').replace("SECOND", '"a"'),
        ZIPPED.replace("FIRST", '"a"').replace("SECOND", '"b"'),
    ),
    "an optimizer that is only unscaled": Pair(
        "MP209", HALVES.replace("STEP", "pass"), HALVES.replace("STEP", "scaler.step(second)")
    ),
    "the loss itself is asked whether it is finite": Pair(
        "MP161", RANKS.replace("TEST", "not loss.isfinite()"), RANKS.replace("TEST", "agreed(loss.isfinite())")
    ),
    "a scale of one's own, by which gradients are divided again": Pair(
        "MP001", FACTOR.replace("DIVIDE", "pass"), FACTOR.replace("DIVIDE", "p.grad.div_(scale.value)")
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_misuse_is_named_and_its_neighbour_is_not(pair):
    """The rule finds the one and leaves the other alone."""
    assert {finding.code for finding in lint_source(pair.misuse, "train.py", select=[pair.code])} == {pair.code}
    assert lint_source(pair.neighbour, "train.py", select=[pair.code]) == []


def severity_between(source: str) -> list[str]:
    """How much MP006 weighs in `source`."""
    return [finding.severity.value for finding in lint_source(source, "train.py") if finding.code == "MP006"]


def test_gradients_written_by_hand_are_as_old_as_their_backward() -> None:
    """Whoever writes .grad, a step whose last backward is older than the update between is an error; else it is not."""
    assert severity_between(TWO.replace("FIRST", OTHER).replace("    SECOND\n", "")) == ["error"]
    assert severity_between(TWO.replace("    FIRST\n", "").replace("SECOND", OTHER)) == ["info"]


def test_a_backward_is_named_once():
    """However many of its products mix dtypes."""
    found = lint_source(PRODUCTS, "train.py", select=["MP082"])

    assert [finding.location.line for finding in found] == [14]
