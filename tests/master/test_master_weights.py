"""A 16-bit weight is always the rounding of its master, and masters train as float32 weights would."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mixprec import Precision
from mixprec._master import MasterWeights, lower_
from mixprec.errors import InvalidValueError, MisuseError

HALVES = {"fp16-master": torch.float16, "bf16-master": torch.bfloat16}
OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "fused-adamw": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def batches(count=12):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(16, 8, generator=generator), torch.randn(16, 4, generator=generator)) for _ in range(count)]


def assert_roundings(precision, model, dtype):
    masters = precision.state_dict()["masters"]
    for name, weight in model.named_parameters():
        assert weight.dtype is dtype
        assert masters[name].dtype is torch.float32
        assert torch.equal(masters[name].to(dtype), weight)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("mode", HALVES)
def test_weights_are_the_roundings_of_masters_that_train_like_float32(mode, make):
    """After every step; and the masters are those of a by-hand loop with float32 copies, bit for bit."""
    dtype = HALVES[mode]
    model = network()
    precision = Precision(mode, make(model.parameters()), model=model)
    by_hand = network()
    full = [nn.Parameter(p.detach().clone()) for p in by_hand.parameters()]
    by_hand.to(dtype)
    optimizer = make(full)
    for x, y in batches():
        with precision.autocast():
            loss = F.mse_loss(model(x).float(), y)
        precision.backward(loss)
        assert precision.step().applied
        assert_roundings(precision, model, dtype)
        scale = 65536.0 if dtype is torch.float16 else 1.0
        with torch.autocast("cpu", dtype):
            (F.mse_loss(by_hand(x).float(), y) * scale).backward()
        for weight, master in zip(by_hand.parameters(), full, strict=True):
            master.grad = weight.grad.float() / scale
            weight.grad = None
        optimizer.step()
        with torch.no_grad():
            for weight, master in zip(by_hand.parameters(), full, strict=True):
                weight.copy_(master)
    for mine, theirs in zip(precision.state_dict()["masters"].values(), full, strict=True):
        assert torch.equal(mine, theirs)


def test_masters_begin_as_the_float32_values_that_the_model_had():
    """Lowering loses nothing: the masters are the very tensors, not roundings."""
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    addresses = [p.data_ptr() for p in model.parameters()]
    masters = MasterWeights([torch.optim.SGD(model.parameters(), 0.1)], torch.bfloat16, model)
    assert all(torch.equal(a, b) for a, b in zip(before, masters.masters, strict=True))
    assert [m.data_ptr() for m in masters.masters] == addresses


def test_updates_below_the_spacing_are_kept():
    """A thousand steps of 1e-5 move a bf16 weight of 1 by 1e-2; without masters it does not move."""
    for mode, moved in (("bf16-master", True), (None, False)):
        model = nn.Linear(1, 1, bias=False)
        nn.init.ones_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), 1e-5)
        if mode is None:
            model.bfloat16()
        precision = None if mode is None else Precision(mode, optimizer, model=model)
        for _ in range(1000):
            if precision is None:
                model.weight.grad = torch.ones_like(model.weight)
                optimizer.step()
            else:
                precision.backward(model.weight.sum())
                precision.step()
        assert (model.weight.item() == 0.98828125) if moved else (model.weight.item() == 1.0)


def test_gradients_exist_in_one_place():
    """After gathering the 16-bit gradients are gone; after the step the float32 ones are too."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    precision = Precision("bf16-master", optimizer, model=model)
    (x, y), *_ = batches()
    with precision.autocast():
        loss = F.mse_loss(model(x).float(), y)
    precision.backward(loss)
    assert all(p.grad is not None and p.grad.dtype is torch.bfloat16 for p in model.parameters())
    assert all(m.grad is None for m in optimizer.param_groups[0]["params"])
    precision._masters.gather_()
    assert all(p.grad is None for p in model.parameters())
    assert all(m.grad.dtype is torch.float32 for m in optimizer.param_groups[0]["params"])
    precision.step()
    assert all(m.grad is None for m in optimizer.param_groups[0]["params"])


def test_a_window_is_summed_in_float32():
    """Sixteen micro-batches of gradients 1 + 2^-7·k add up exactly, which bf16 sums would not."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    precision = Precision("bf16-master", torch.optim.SGD(model.parameters(), 1.0), model=model, accumulate=16)
    gradients = [1.0 + 2.0**-7 * k for k in range(16)]
    for gradient in gradients:
        precision.backward((model.weight * (16 * gradient)).sum())
        precision.step()
    master = next(iter(precision.state_dict()["masters"].values()))
    assert master.item() == -sum(gradients)
    in_bf16 = torch.zeros((), dtype=torch.bfloat16)
    for gradient in gradients:
        in_bf16 += gradient
    assert in_bf16.item() != sum(gradients)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_skipped_step_changes_no_weight_and_no_master(make):
    """An infinite fp16 gradient is seen through the masters, whatever the optimizer."""
    model = network()
    precision = Precision("fp16-master", make(model.parameters()), model=model)
    before = copy.deepcopy(precision.state_dict()["masters"])
    weights = copy.deepcopy(model.state_dict())
    (x, y), *_ = batches()
    with precision.autocast():
        loss = F.mse_loss(model(x).float(), y) * 1e8
    precision.backward(loss)
    report = precision.step()
    assert (report.applied, report.scale_after) == (False, 32768.0)
    for name, master in precision.state_dict()["masters"].items():
        assert torch.equal(master, before[name])
        assert torch.equal(model.state_dict()[name], weights[name])


@pytest.mark.parametrize("fused", [False, True])
def test_clipping_is_that_of_the_unscaled_float32_gradients(fused):
    """The norm in the report is the norm of the 16-bit gradients without scale, and the step is clipped by it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1.0, fused=fused)
    precision = Precision("fp16-master", optimizer, model=model, max_norm=0.1)
    (x, y), *_ = batches()
    with precision.autocast():
        loss = F.mse_loss(model(x).float(), y)
    precision.backward(loss)
    norm = torch.cat([p.grad.double().flatten() / 65536 for p in model.parameters()]).norm().item()
    before = [m.clone() for m in precision.state_dict()["masters"].values()]
    report = precision.step()
    assert report.grad_norm == pytest.approx(norm, rel=1e-5)
    moved = [a - b for a, b in zip(before, precision.state_dict()["masters"].values(), strict=True)]
    assert torch.cat([m.flatten() for m in moved]).norm().item() == pytest.approx(0.1, rel=1e-4)


def test_weights_set_from_outside_are_followed():
    """Loading other weights moves the masters of exactly the elements that changed; the rest keeps its last bits."""
    model = network()
    precision = Precision("bf16-master", torch.optim.SGD(model.parameters(), 0.0), model=model)
    before = copy.deepcopy(precision.state_dict()["masters"])
    with torch.no_grad():
        model[0].weight[0, 0] = 3.0
        swapped = {name: p.clone() for name, p in model.named_parameters()}
        for p in model.parameters():  # as an average is swapped in for evaluation, and out again
            p.zero_()
        for name, p in model.named_parameters():
            p.copy_(swapped[name])
    (x, y), *_ = batches()
    with precision.autocast():
        loss = F.mse_loss(model(x).float(), y)
    precision.backward(loss)
    precision.step()
    after = precision.state_dict()["masters"]
    assert after["0.weight"][0, 0] == 3.0
    after["0.weight"][0, 0] = before["0.weight"][0, 0]
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_optimizer_state_follows_to_the_masters():
    """An optimizer that has trained already keeps its momentum."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    F.mse_loss(model(torch.ones(1, 8)), torch.ones(1, 4)).backward()
    optimizer.step()
    held = [s["exp_avg"].clone() for s in optimizer.state.values()]
    MasterWeights([optimizer], torch.float16, model)
    states = [optimizer.state[p] for p in optimizer.param_groups[0]["params"]]
    assert len(optimizer.state) == len(states)
    assert all(torch.equal(a, s["exp_avg"]) for a, s in zip(held, states, strict=True))
    half = network().half()
    optimizer = torch.optim.SGD(half.parameters(), 0.1, momentum=0.9)
    for p in half.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    MasterWeights([optimizer], torch.float16)
    assert all(s["momentum_buffer"].dtype is torch.float32 for s in optimizer.state.values())


def test_lowering_spares_batch_norm_and_buffers_and_keeps_ties():
    """Running statistics and their affine parameters stay float32, buffers stay, one tied weight stays one."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.norm = nn.BatchNorm1d(4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.register_buffer("frequencies", torch.arange(4.0))

        def forward(self, x):
            return self.second(self.norm(self.first(x)) + self.frequencies)

    model = Tied()
    lowered = lower_(model, torch.float16)
    assert model.second.weight is model.first.weight
    assert model.first.weight.dtype is torch.float16
    assert (model.norm.weight.dtype, model.norm.running_mean.dtype) == (torch.float32, torch.float32)
    assert model.frequencies.dtype is torch.float32
    assert len(lowered) == 3
    trained = Tied()
    precision = Precision("fp16-master", torch.optim.AdamW(trained.parameters()), model=trained)
    applied = 0
    for _ in range(8):  # the first overflow on the way down from 65536
        with precision.autocast():
            loss = trained(torch.randn(8, 4)).float().square().mean()
        precision.backward(loss)
        applied += precision.step().applied
    assert applied
    assert "first.weight" in precision.state_dict()["masters"]
    assert "norm.weight" not in precision.state_dict()["masters"]


def test_a_model_that_is_16_bit_already_needs_no_model_argument():
    """Masters are then the exact float32 values of the 16-bit weights."""
    model = network().bfloat16()
    precision = Precision("bf16-master", torch.optim.SGD(model.parameters(), 0.1))
    masters = list(precision.state_dict()["masters"].values())
    assert all(torch.equal(m, p.float()) for m, p in zip(masters, model.parameters(), strict=True))


def test_nothing_to_keep_masters_of_is_refused():
    """A float32 model without model= has nothing in 16 bits; the error says both ways out, and both work."""
    with pytest.raises(
        MisuseError, match=r"hold no float16 parameter.*Give model=model.*or build the model in float16"
    ):
        Precision("fp16-master", torch.optim.SGD(network().parameters(), 0.1))
    model = network()
    Precision("fp16-master", torch.optim.SGD(model.parameters(), 0.1), model=model)
    Precision("fp16-master", torch.optim.SGD(network().half().parameters(), 0.1))
    with pytest.raises(InvalidValueError, match=r"dtype is torch.float32; accepted is torch.float16 or"):
        MasterWeights([torch.optim.SGD(network().parameters(), 0.1)], torch.float32)


def test_frozen_weights_are_lowered_without_master():
    """What no optimizer holds is stored in 16 bits and costs nothing more."""
    model = network()
    model[0].requires_grad_(False)
    precision = Precision("bf16-master", torch.optim.SGD(model[2].parameters(), 0.1), model=model)
    assert model[0].weight.dtype is torch.bfloat16
    assert set(precision.state_dict()["masters"]) == {"2.weight", "2.bias"}


def test_sparse_gradients_reach_the_masters():
    """An embedding with sparse gradients trains as the dense one does, summed over a window too."""
    tables = []
    for sparse in (False, True):
        torch.manual_seed(0)
        model = nn.Embedding(10, 4, sparse=sparse)
        precision = Precision("bf16-master", torch.optim.SGD(model.parameters(), 0.5), model=model, accumulate=2)
        for index in (torch.tensor([1, 2, 2]), torch.tensor([2, 5, 5])):
            precision.backward(model(index).float().square().sum())
            precision.step()
        tables.append(model.weight.detach().clone())
    assert torch.equal(*tables)
