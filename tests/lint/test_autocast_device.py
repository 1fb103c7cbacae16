"""A region for CUDA is said to do nothing only where the script surely keeps everything on the CPU."""

from __future__ import annotations

import pytest

from mixprec.lint import lint_source

SCRIPT = """\
import torch
from torch import nn

DEVICE = "cuda"
net = nn.Linear(12, 3){moved}
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(DEVICE)
for _ in range(30):
    x = torch.randn(16, 12{where})
    with torch.autocast(DEVICE, dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""


def codes(source):
    return {f.code for f in lint_source(source, "train.py")}


def test_a_script_that_never_moves_anything_is_on_the_cpu():
    """Model and data are made by torch without a device, so the region has nothing to work on."""
    assert "MP080" in codes(SCRIPT.format(moved="", where=""))


@pytest.mark.parametrize(
    "script",
    [
        SCRIPT.format(moved=".cuda()", where=""),
        SCRIPT.format(moved=".to(DEVICE)", where=", device=DEVICE"),
        SCRIPT.format(moved="", where="").replace("import torch\n", "import torch\nfrom mine import setup\n", 1),
        SCRIPT.format(moved="", where="").replace("net =", 'torch.set_default_device("cuda")\nnet ='),
    ],
)
def test_a_script_that_may_be_elsewhere_is_left_alone(script):
    """Anything that moves tensors, or may, keeps the rule quiet."""
    assert "MP080" not in codes(script)
