"""Accelerate's accelerator keeps its ways, with mixprec's policy inside and what contradicts it refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("accelerate", reason="extra: accelerate")

from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import GradScalerKwargs

from mixprec import GradScaler
from mixprec.errors import InvalidValueError, UnknownNameError
from mixprec.integrations.accelerate import MixprecAccelerator, use_mixprec

pytestmark = pytest.mark.integrations


@pytest.fixture(autouse=True)
def _fresh():
    AcceleratorState._reset_state()
    PartialState._reset_state()
    torch.manual_seed(0)


class Probe(nn.Module):
    """Gives the dtype in which softmax runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        inside = self.linear(x)
        return inside, torch.softmax(inside, -1).dtype


@pytest.mark.parametrize(("policy", "dtype"), [(None, torch.bfloat16), ("uniform", torch.float32)])
def test_the_policy_holds_in_prepared_models_and_in_autocast(policy, dtype):
    """softmax is 16-bit on PyTorch's CPU list and float32 under `uniform`; results come out as float32 either way."""
    accelerator = MixprecAccelerator(mixed_precision="bf16", cpu=True, policy=policy)
    model = Probe()
    original = model.forward.__func__
    prepared = accelerator.prepare(model)
    out, found = prepared(torch.randn(2, 4))
    assert (out.dtype, found) == (torch.float32, dtype)
    with accelerator.autocast():
        assert torch.softmax(torch.ones(2, 2) @ torch.ones(2, 2), -1).dtype is dtype
    assert torch.softmax(torch.ones(2, 2), -1).dtype is torch.float32
    assert accelerator.unwrap_model(prepared, keep_fp32_wrapper=False).forward.__func__ is original


def test_fp16_on_a_cpu_is_fp16():
    """Accelerate itself trains in float32 there; with mixprec the region is float16 and the loss is scaled."""
    plain = Accelerator(mixed_precision="fp16", cpu=True)
    assert plain.scaler is None
    made = use_mixprec(plain)
    assert made is plain
    assert isinstance(made.scaler, GradScaler)
    with made.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float16


def test_a_handler_sets_the_scaler_up():
    """What GradScalerKwargs says is taken."""
    handler = GradScalerKwargs(init_scale=256.0, growth_interval=7)
    made = MixprecAccelerator(mixed_precision="fp16", cpu=True, kwargs_handlers=[handler])
    assert (made.scaler.get_scale(), made.scaler.get_growth_interval()) == (256.0, 7)


def test_accumulation_and_clipping_step_once_per_window():
    """Two micro-batches are one step whose gradient is their mean; the norm that clipping returns is unscaled."""
    accelerator = MixprecAccelerator(mixed_precision="fp16", cpu=True, gradient_accumulation_steps=2)
    model = nn.Linear(4, 1, bias=False)
    weight = model.weight.detach().clone()
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1.0))
    x = torch.randn(2, 4)
    for micro in range(2):
        with accelerator.accumulate(prepared):
            accelerator.backward(0.1 * prepared(x[micro : micro + 1]).sum())
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(prepared.parameters(), 100.0)
            optimizer.step()
            optimizer.zero_grad()
    assert accelerator.report(optimizer).step == 0
    torch.testing.assert_close(weight - model.weight.detach(), 0.1 * x.mean(0, keepdim=True), rtol=2e-3, atol=2e-4)
    assert float(norm) == pytest.approx(0.1 * float(x.mean(0).norm()), rel=2e-3)


REFUSED = {
    "another scaler": (
        lambda: MixprecAccelerator(mixed_precision="fp16", cpu=True, scaler=torch.amp.GradScaler("cpu")),
        InvalidValueError,
        "accepted is a mixprec.GradScaler",
    ),
    "a scaler for bf16": (
        lambda: MixprecAccelerator(mixed_precision="bf16", cpu=True, scaler=GradScaler("cpu")),
        InvalidValueError,
        "fp16 alone needs a loss scale",
    ),
    "a policy without a region": (
        lambda: MixprecAccelerator(cpu=True, policy="lean"),
        InvalidValueError,
        "policy is 'lean'; accepted is None with mixed_precision='no'",
    ),
    "a policy that does not exist": (
        lambda: MixprecAccelerator(mixed_precision="bf16", cpu=True, policy="leen"),
        UnknownNameError,
        "did you mean 'lean'",
    ),
    "a report without a scale": (
        lambda: MixprecAccelerator(mixed_precision="bf16", cpu=True).report(None),
        InvalidValueError,
        "only fp16 has reports",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_is_refused(name):
    """With the value, what is accepted and the way out; the accepted neighbour is made."""
    act, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        act()
    AcceleratorState._reset_state()
    assert MixprecAccelerator(mixed_precision="fp16", cpu=True, scaler=GradScaler("cpu"), policy="lean")


def test_what_is_prepared_already_is_refused():
    """A prepared optimizer holds Accelerate's scaler; before that the same accelerator is taken."""
    accelerator = Accelerator(mixed_precision="fp16", cpu=True)
    accelerator.prepare(nn.Linear(2, 2))
    with pytest.raises(InvalidValueError, match="already holds Accelerate's own scaler"):
        use_mixprec(accelerator)


def test_the_fault_is_there_without_us():
    """A fused optimizer that skipped counts as stepped in Accelerate's own optimizer: what the subclass is for."""
    accelerator = Accelerator(mixed_precision="fp16", cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu")
    model = nn.Linear(2, 1)
    optimizer = accelerator.prepare_optimizer(torch.optim.SGD(model.parameters(), 0.1, fused=True))
    before = model.weight.detach().clone()
    accelerator.backward(model(torch.ones(1, 2)).sum() * float("inf"))
    optimizer.step()
    assert torch.equal(model.weight, before)
    assert not optimizer.step_was_skipped
