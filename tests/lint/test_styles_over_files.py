"""A package whose scaler, regions and steps are in files of their own: a mistake is told where a script leads to it."""

from __future__ import annotations

import pytest

from mixprec.lint import Project, lint_source
from mixprec.records import Severity

FILES = {
    "proj/__init__.py": """\
""",
    "proj/amp.py": """\
import contextlib
import torch

class Amp:
    def __init__(self, mode, device="cuda"):
        self.dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(mode)
        self.device = device
        self.scaler = torch.amp.GradScaler(device, enabled=mode == "fp16")

    def region(self):
        if self.dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=self.dtype)

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def step(self, optimizer, params=None, max_norm=None):
        if max_norm is not None:
            self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(params, max_norm)
        self.scaler.step(optimizer)
        self.scaler.update()
""",
    "proj/engine.py": """\
import torch
from .amp import Amp

def train_one_epoch(model, loader, optimizer, amp: Amp, accum=4, max_norm=1.0):
    model.train()
    optimizer.zero_grad(set_to_none=True)
    for i, (x, y) in enumerate(loader):
        with amp.region():
            loss = torch.nn.functional.cross_entropy(model(x), y) / accum
        amp.backward(loss)
        if (i + 1) % accum == 0:
            amp.step(optimizer, model.parameters(), max_norm)
            optimizer.zero_grad(set_to_none=True)
""",
    "train.py": """\
import argparse
import torch
from proj.amp import Amp
from proj.engine import train_one_epoch

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--amp", default="fp16")
    args = p.parse_args()
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    amp = Amp(args.amp)
    for epoch in range(10):
        train_one_epoch(model, loader, optimizer, amp)

if __name__ == "__main__":
    main()
""",
    "gan.py": """\
import torch
from proj.amp import Amp

class Gan:
    def __init__(self, G, D):
        self.G, self.D = G, D
        self.amp = Amp("fp16")
        self.og = torch.optim.Adam(G.parameters())
        self.od = torch.optim.Adam(D.parameters())
    def d(self, x, z):
        self.od.zero_grad()
        with self.amp.region():
            loss = self.D(self.G(z).detach()).mean() - self.D(x).mean()
        self.amp.backward(loss)
        self.amp.step(self.od)
    def g(self, z):
        self.og.zero_grad()
        with self.amp.region():
            loss = -self.D(self.G(z)).mean()
        self.amp.backward(loss)
        self.amp.step(self.og)
    def fit(self, loader):
        for x in loader:
            z = torch.randn_like(x)
            self.d(x, z)
            self.g(z)
""",
}

MISTAKES = [
    ("MP002", "proj/amp.py", "            self.scaler.unscale_(optimizer)\n", ""),
    ("MP005", "proj/amp.py", "        self.scaler.update()\n", ""),
    ("MP003", "proj/amp.py", "        self.scaler.step(optimizer)\n", "        optimizer.step()\n"),
    ("MP004", "proj/amp.py", "self.scaler.scale(loss).backward()", "loss.backward()"),
    ("MP146", "proj/engine.py", "            optimizer.zero_grad(set_to_none=True)\n", ""),
    (
        "MP007",
        "proj/engine.py",
        "        amp.backward(loss)\n",
        "        amp.backward(loss)\n        amp.scaler.unscale_(optimizer)\n",
    ),
    (
        "MP004",
        "gan.py",
        "        self.amp.backward(loss)\n        self.amp.step(self.og)",
        "        loss.backward()\n        self.amp.step(self.og)",
    ),
    (
        "MP016",
        "train.py",
        "    for epoch in range(10):\n",
        "    for epoch in range(10):\n        amp = Amp(args.amp)\n",
    ),
    ("MP003", "gan.py", "        self.amp.step(self.od)", "        self.od.step()"),
]


def said(files):
    """The codes given in the two scripts, with the other files at hand."""
    return {
        finding.code
        for name in ("train.py", "gan.py")
        for finding in lint_source(files[name], name, project=Project(sources=files))
        if finding.severity is not Severity.INFO
    }


def test_the_package_is_right():
    """Nothing is said about either script."""
    assert said(FILES) == set()


@pytest.mark.parametrize(("code", "place", "text", "instead"), MISTAKES)
def test_a_mistake_in_any_of_its_files_is_told(code, place, text, instead):
    """The code is given in a script that runs into the mistake."""
    assert text in FILES[place]

    assert code in said({**FILES, place: FILES[place].replace(text, instead)})
