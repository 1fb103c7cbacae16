"""A misuse is named where another object holds the parts: a registry, a perturbation, a guard, a dict of arguments."""

from __future__ import annotations

import re

import pytest

from mixprec.lint import Project, lint_source
from mixprec.records import Severity

SETUP = """\
import copy
import torch
import torch.nn.functional as F
from torch import nn

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
"""

CHOSEN = """\
import torch
from torch import nn

PRECISIONS = {"none": None, "half": torch.float16, "bf16": torch.bfloat16}


class Fold:
    def __init__(self, args):
        self.flag, self.dtype = args.amp, PRECISIONS[args.amp]

    def region(self):
        return torch.autocast("cuda", dtype=GIVEN, enabled=self.dtype is not None)MARK
"""

NORMS = """
def norm(params, factor):
    norms = [p.grad.detach().norm() for p in params if p.grad is not None]MARK
    total = torch.stack(norms).norm()
    return RETURNED


for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(net(x), y)
    scaler.scale(loss).backward()
    value = norm(net.parameters(), scaler.get_scale())CALLED
    print(loss.item(), value)
    scaler.step(optimizer)
    scaler.update()
"""

GUARD = """
class Spike(RuntimeError):
    pass


class Guard:
    def check(self, norm):
        if norm > 3.0:
            raise Spike(norm)


guard = Guard()
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    try:
        guard.check(nn.utils.clip_grad_norm_(net.parameters(), 10.0).item())MARK
        scaler.step(optimizer)
        scaler.update()
    except TAKEN:
        HANDLED
    finally:
        optimizer.zero_grad()
"""

REGISTRY = """
def save(path, registry, epoch):
    payload = {name: part.state_dict() for name, part in registry.items()}
    payload["epoch"] = epoch
    torch.save(payload, path)


registry = {PARTS}MARK
LATER
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    save("last.pt", registry, epoch)
"""

ENTROPY = """\
import torch
import torch.nn.functional as F
from torch import nn


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)

    def forward(self, x):
        g = GATE
        return g / (g.sum(-1, keepdim=True) + 1e-6)


def entropy(p):
    with torch.autocast("cuda", enabled=False):
        p = p.float()
        SAFE
        return -torch.where(p > 0, TERM, torch.zeros_like(p)).sum(-1).mean()MARK


net = Router().cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for x in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = entropy(net(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

PERTURBED = """\
import torch
import torch.nn.functional as F
from torch import nn


class Perturb:
    def __init__(self, model, size):
        self.model, self.size, self.kept = model, size, {}

    def attack(self):
        for name, p in self.model.named_parameters():
            self.kept[name] = p.data.clone()
            p.data.add_(torch.randn_like(p) * self.size)

    def measure(self):
        return max(p.abs().max() for name, p in self.model.named_parameters())


net = nn.Linear(8, 1).cuda()
awp = Perturb(net, size=0.05)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16CACHE):
        clean = F.mse_loss(net(x), y)
        awp.DONE()MARK
        loss = clean + F.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

AVERAGER = """
class Averager:
    def __init__(self, model, decay):
        self.decay = decay
        self.module = copy.deepcopy(model).eval()
        self.module.to(dtype=torch.AVERAGE)

    @torch.no_grad()
    def update(self, model):
        source = model.state_dict()
        for name, avg in self.module.state_dict().items():
            new = source[name]CAST
            avg.copy_(avg * self.decay + new * (1 - self.decay))MARK


Averager(net, decay=DECAY).update(net)
"""

MATRIX = """
class Confusion:
    def __init__(self, classes):
        self.n = classes
        self.mat = torch.zeros(classes, classes)CAST

    def update(self, pred, target):
        seen = self.n * target + pred
        self.mat += ADDED.view(self.n, self.n)MARK


matrix = Confusion(10)
for x, y in loader:
    matrix.update(net(x).argmax(1), y)
"""

SUBMODULES = """\
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.first(x))))


def lighten(module):
    for child in module.children():
        lighten(child)
    if isinstance(module, LAYERS):
        module.half()MARKED
    return module


def convert(layer):
    if isinstance(layer, LAYERS):
        layer.half()MARKED


net = Net().cuda()
LIGHTENED
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

PRETRAINED = """\
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/model", dtype=ASKED).cuda()MARK
ADAPTED
optimizer = torch.optim.AdamW(TRAINED.parameters(), lr=1e-5)
for batch in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

FACTORY = """\
import torch
import torch.nn.functional as F
from torch import nn

kw = dict(device="cuda", dtype=torch.DTYPE)


class Head(nn.Module):
    def __init__(self, dim=8, **factory):
        super().__init__()
        self.first = nn.Linear(dim, dim, **factory)MARK
        self.last = nn.Linear(dim, 1, **factory)

    def forward(self, x):
        return self.last(self.first(x))


net = Head(**kw)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(net(x.to(kw["dtype"])).float(), y).backward()
    optimizer.step()
"""


def filled(template: str, **parts: str) -> str:
    for name, text in parts.items():
        template = template.replace(name, text)
    return template


CHECKED = {"TAKEN": "Spike as error", "MARK": "", "HANDLED": "print(error)"}
STATES = {"PARTS": '"net": net, "optimizer": optimizer', "LATER": "", "MARK": ""}
GATED = {"GATE": "F.relu(self.gate(x)).float()", "SAFE": "pass", "TERM": "p * p.log()", "MARK": ""}
ATTACKED = {"CACHE": "", "DONE": "attack", "MARK": ""}
AVERAGED = {"AVERAGE": "bfloat16", "CAST": "", "DECAY": "0.9995", "MARK": ""}
COUNTED = {"CAST": ".half()", "ADDED": "torch.bincount(seen, minlength=self.n**2)", "MARK": ""}
LAYERED = {"LAYERS": "(nn.Conv2d, nn.Linear)", "MARKED": "", "LIGHTENED": "pass"}
LOADED = {"ASKED": '"auto"', "ADAPTED": "model.train()", "TRAINED": "model", "MARK": ""}

FAULTS = {
    "a flag that stands where the dtype belongs": filled(CHOSEN, GIVEN="self.flag or True", MARK="  # MP081"),
    "the norm of scaled gradients": SETUP + filled(NORMS, MARK="  # MP002", RETURNED="total.item()", CALLED=""),
    "a norm divided by something else": SETUP
    + filled(NORMS, MARK="  # MP002", RETURNED="total.item() / len(norms)", CALLED=""),
    "a guard raises between unscale_ and update": SETUP + filled(GUARD, **{**CHECKED, "MARK": "  # MP142"}),
    "a guard raises what a handler of its base takes": SETUP
    + filled(GUARD, **{**CHECKED, "MARK": "  # MP142", "TAKEN": "RuntimeError as error"}),
    "a registry without the scaler": SETUP + filled(REGISTRY, **{**STATES, "MARK": "  # MP017"}),
    "the slope of p log p where a rectifier made p 0": filled(ENTROPY, **{**GATED, "MARK": "  # MP046"}),
    "the slope of p log p where clamp made p 0": filled(
        ENTROPY, **{**GATED, "GATE": "self.gate(x).clamp(min=0).float()", "MARK": "  # MP046"}
    ),
    "an object that perturbs the weights": filled(PERTURBED, **{**ATTACKED, "MARK": "  # MP088"}),
    "a bfloat16 copy that a sum updates": SETUP
    + filled(AVERAGER, **{**AVERAGED, "CAST": ".to(avg.dtype)", "MARK": "  # MP064"}),
    "a bfloat16 copy that a float32 sum updates": SETUP + filled(AVERAGER, **{**AVERAGED, "MARK": "  # MP064"}),
    "a half matrix of counts": SETUP + filled(MATRIX, **{**COUNTED, "MARK": "  # MP068"}),
    "layers made half from the bottom up": filled(
        SUBMODULES.replace("MARKED", "  # MP084", 1), **{**LAYERED, "LIGHTENED": "net = lighten(net)"}
    ),
    "layers made half in a loop": filled(
        SUBMODULES,
        **{
            **LAYERED,
            "LIGHTENED": "for one in net.modules():\n    if isinstance(one, nn.Linear):\n        one.half()  # MP084",
        },
    ),
    "layers made half by apply": filled(
        SUBMODULES[::-1].replace("DEKRAM", "480PM #  ", 1)[::-1], **{**LAYERED, "LIGHTENED": "net.apply(convert)"}
    ),
    "a model in the dtype of its file": filled(PRETRAINED, **{**LOADED, "MARK": "  # MP098"}),
    "layers of a dict of arguments": filled(FACTORY, DTYPE="bfloat16", MARK="  # MP061"),
}

HEALTHY = {
    "a dtype or another, where the first may be None": filled(CHOSEN, GIVEN="self.dtype or torch.bfloat16", MARK=""),
    "a norm that its function divides by the scale": SETUP
    + filled(NORMS, MARK="", RETURNED="total.item() / factor", CALLED=""),
    "a norm that its caller divides by the scale": SETUP
    + filled(NORMS, MARK="", RETURNED="total.item()", CALLED=" / scaler.get_scale()"),
    "the handler updates as well": SETUP + filled(GUARD, **{**CHECKED, "HANDLED": "scaler.update()"}),
    "the handler ends the training": SETUP + filled(GUARD, **{**CHECKED, "HANDLED": "break"}),
    "the handler takes something else": SETUP + filled(GUARD, **{**CHECKED, "TAKEN": "KeyError as error"}),
    "a registry with the scaler": SETUP
    + filled(REGISTRY, **{**STATES, "PARTS": '"net": net, "optimizer": optimizer, "amp": scaler'}),
    "a registry that gets the scaler later": SETUP
    + filled(REGISTRY, **{**STATES, "LATER": 'registry["amp"] = scaler'}),
    "a registry of models": SETUP + filled(REGISTRY, **{**STATES, "PARTS": '"net": net, "ema": copy.deepcopy(net)'}),
    "p log p of a softmax": filled(ENTROPY, **{**GATED, "GATE": "self.gate(x).float().softmax(-1)"}),
    "p log p of what was replaced where it is 0": filled(
        ENTROPY, **{**GATED, "SAFE": "q = torch.where(p > 0, p, torch.ones_like(p))", "TERM": "q * q.log()"}
    ),
    "p log p of what is kept from 0": filled(ENTROPY, **{**GATED, "SAFE": "p = p.clamp(min=1e-6)"}),
    "xlogy": filled(ENTROPY, **{**GATED, "TERM": "torch.xlogy(p, p)"}),
    "an object that looks at the weights": filled(PERTURBED, **{**ATTACKED, "DONE": "measure"}),
    "an object that perturbs weights that are not cached": filled(
        PERTURBED, **{**ATTACKED, "CACHE": ", cache_enabled=False"}
    ),
    "a float32 copy that a sum updates": SETUP + filled(AVERAGER, **{**AVERAGED, "AVERAGE": "float32"}),
    "a bfloat16 copy that moves fast": SETUP + filled(AVERAGER, **{**AVERAGED, "DECAY": "0.9"}),
    "a bfloat16 copy of a float32 average": SETUP
    + filled(AVERAGER, **{**AVERAGED, "avg * self.decay": "source[name] * self.decay"}),
    "a float32 matrix of counts": SETUP + filled(MATRIX, **{**COUNTED, "CAST": ""}),
    "a half matrix of something else": SETUP + filled(MATRIX, **{**COUNTED, "ADDED": "self.weights"}),
    "no layer of the network is made half": filled(
        SUBMODULES, **{**LAYERED, "LAYERS": "nn.Conv2d", "LIGHTENED": "net = lighten(net)"}
    ),
    "layers that stay float32": filled(SUBMODULES, **LAYERED),
    "a model in float32": filled(PRETRAINED, **{**LOADED, "ASKED": "torch.float32"}),
    "a model made float32 after loading": filled(PRETRAINED, **{**LOADED, "ADAPTED": "model.float()"}),
    "a model that an adapter trains": filled(
        PRETRAINED, **{**LOADED, "ADAPTED": "model = get_peft_model(model, lora)"}
    ),
    "another model is trained": filled(PRETRAINED, **{**LOADED, "TRAINED": "head"}),
    "layers of a dict of float32 arguments": filled(FACTORY, DTYPE="float32", MARK=""),
}

MARK = re.compile(r"# (MP\d{3})")


def warned(source: str) -> list[tuple[int, str]]:
    found = lint_source(source, "train.py", project=Project())
    return [(f.location.line, f.code) for f in found if f.severity is not Severity.INFO]


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


def test_what_a_guard_raises_is_told():
    """The message names the call and the exception, as there is no test to name."""
    found = lint_source(FAULTS["a guard raises between unscale_ and update"], "train.py", project=Project())

    assert "when `guard.check` raises Spike" in found[0].message
