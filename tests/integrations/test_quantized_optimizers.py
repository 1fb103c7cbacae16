"""Optimizers of bitsandbytes and torchao, with 8- and 4-bit states, are stepped, clipped and skipped like torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mixprec import GradScaler, Precision

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

MAKERS = {
    "bitsandbytes AdamW8bit": ("bitsandbytes", "optim", "AdamW8bit", 0.01),
    "bitsandbytes AdamW": ("bitsandbytes", "optim", "AdamW", 0.01),
    "bitsandbytes Lion8bit": ("bitsandbytes", "optim", "Lion8bit", 0.001),
    "torchao AdamW8bit": ("torchao", "optim", "AdamW8bit", 0.01),
    "torchao AdamW4bit": ("torchao", "optim", "AdamW4bit", 0.01),
}


def network() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(256, 64)  # large enough for 8-bit state in both


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 256, generator=generator)
    return 0.1 * model(x).float().square().mean() * (float("inf") if step == 1 else 1.0)


@pytest.fixture(params=MAKERS)
def make(request):
    """`make(model)` -> an optimizer of that library."""
    package, module, name, rate = MAKERS[request.param]
    pytest.importorskip(package, reason="extra: quantized")
    library = pytest.importorskip(f"{package}.{module}", reason="extra: quantized")
    return lambda model: getattr(library, name)(model.parameters(), rate)


def test_found_inf_clip_skip_and_report_are_right(make):
    """Step 1 overflows and moves no parameter; the norm of the other steps is that of float32 gradients."""
    model, scaler = network(), GradScaler("cpu")
    optimizer = make(model)
    for step in range(4):
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(model, step)
        expected = torch.autograd.grad(loss_of(model, step), model.weight)[0] if step != 1 else None
        scaler.scale(loss).backward()
        scaler.step(optimizer, max_norm=0.02)
        scaler.update()
        report = scaler.report(optimizer)
        assert report.applied is (step != 1)
        assert torch.equal(before, model.weight) is (step == 1)
        if expected is not None:
            assert report.grad_norm == pytest.approx(float(expected.norm()), rel=1e-2)
            assert report.clip_coefficient == pytest.approx(0.02 / report.grad_norm, rel=1e-3)
            clipped = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()
            assert float(clipped) == pytest.approx(0.02, rel=1e-3)
    assert scaler.get_scale() == 2.0**15


def test_the_front_door_takes_them(make):
    """The same through Precision; the parameters equal those of the scaler's own loop, bit for bit."""
    looped, model = network(), network()
    optimizer, scaler = make(looped), GradScaler("cpu")
    door = Precision("fp16-mixed", make(model), model=model, max_norm=0.02)
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(looped, step)
        scaler.scale(loss).backward()
        scaler.step(optimizer, max_norm=0.02)
        scaler.update()
        with door.autocast():
            loss = loss_of(model, step)
        door.backward(loss)
        assert door.step().applied is (step != 1)
    assert torch.equal(looped.weight, model.weight)
