"""bf16 weights without masters follow what float64 weights do, within the bounds that the docstrings state."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mixprec._lowbit import KahanSum, StochasticRounding, round_stochastically
from mixprec.errors import CheckpointError, InvalidValueError

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
    "fused-adamw": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-3),
}


def drift(make, wrap, dtype, steps=400, count=256):
    """Where `steps` updates with given gradients lead the weights 1 … 2."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter((1 + torch.rand(count, generator=generator)).bfloat16().to(dtype))
    optimizer = wrap(make([weight]))
    for _ in range(steps):
        weight.grad = (1 + 0.1 * torch.randn(count, generator=generator)).bfloat16().to(dtype)
        optimizer.step()
    return weight, optimizer


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_kahan_is_a_float32_master_bit_for_bit(make):
    """Weight and compensation together are what float32 training of the same weights gives; the weight rounds it."""
    master, _ = drift(make, lambda optimizer: optimizer, torch.float32)
    weight, optimizer = drift(make, KahanSum, torch.bfloat16)
    assert torch.equal(optimizer._widen(weight, optimizer.state[weight]), master)
    assert (weight.float() - master).abs().max() <= (master.bfloat16().float() - master).abs().max()
    assert optimizer.state[weight]["compensation"].dtype is torch.int16


@pytest.mark.parametrize("name", ["adamw", "sgd", "adagrad"])
def test_kahan_follows_float64_where_plain_bf16_does_not(name):
    """After 400 steps the error is below 1e-5 of the weight; that of plain bf16 is a hundred times larger."""
    exact, _ = drift(OPTIMIZERS[name], lambda optimizer: optimizer, torch.float64)
    weight, optimizer = drift(OPTIMIZERS[name], KahanSum, torch.bfloat16)
    full = optimizer._widen(weight, optimizer.state[weight]).double()
    error = ((full - exact).abs() / exact.abs()).max().item()
    assert error < 1e-5
    naive, _ = drift(OPTIMIZERS[name], lambda optimizer: optimizer, torch.bfloat16)
    assert ((naive.double() - exact).abs() / exact.abs()).max().item() > 100 * error


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(width=32))
def test_splitting_a_float32_and_joining_it_is_exact(value):
    """For every value, infinities, NaN and ties included, and the weight is within half a spacing."""
    exact = torch.tensor([value])
    state: dict[str, torch.Tensor] = {}
    weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    optimizer = KahanSum(torch.optim.SGD([weight], 0.1))
    with torch.no_grad():
        optimizer._narrow_(weight, exact, state)
    if exact.isnan():
        assert weight.isnan()
        return
    assert torch.equal(optimizer._widen(weight, state).view(torch.int32), exact.view(torch.int32))
    assert weight.isfinite() or not exact.bfloat16().isfinite()
    if weight.isfinite():
        assert (weight.double() - exact.double()).abs() <= (exact.bfloat16().double() - exact.double()).abs()


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_stochastic_rounding_is_right_on_average(make):
    """The mean over many weights and seeds follows float64 within 4 standard errors, where plain bf16 is far off."""
    weights, exact = [], None
    for seed in range(4):
        weight, _ = drift(make, lambda o, seed=seed: StochasticRounding(o, seed), torch.bfloat16)
        weights.append(weight.double())
    base = OPTIMIZERS["adamw"] if make is OPTIMIZERS["fused-adamw"] else make
    exact, _ = drift(base, lambda optimizer: optimizer, torch.float64)
    errors = torch.stack([weight - exact for weight in weights]).detach()
    standard_error = errors.std().item() / errors.numel() ** 0.5
    assert abs(errors.mean().item()) < 4 * standard_error
    if base is make:
        naive, _ = drift(make, lambda optimizer: optimizer, torch.bfloat16)
        assert abs((naive - exact).mean().item()) > 20 * standard_error


def test_an_update_far_below_the_spacing_counts():
    """1,000 updates of 1e-5 move a weight of 1 by 1e-2 under both wrappers; a bf16 weight alone stays at 1."""
    for wrap, close in ((KahanSum, 2.0**-9), (StochasticRounding, 2.0**-9), (lambda o: o, None)):
        weight = nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
        optimizer = wrap(torch.optim.SGD([weight], 1e-5))
        for _ in range(1000):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        if close is None:
            assert torch.equal(weight, torch.ones_like(weight))
        else:
            assert weight.double().mean().item() == pytest.approx(0.99, abs=close)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 2**31))
def test_rounding_gives_a_neighbour(value, seed):
    """Of any float32 one of the two enclosing bf16 values, and the value itself if it is one."""
    exact = torch.tensor([value] * 8)
    rounded = round_stochastically(exact, torch.Generator().manual_seed(seed)).float()
    toward_zero = (exact.view(torch.int32) & -65536).view(torch.float32)
    away = ((exact.view(torch.int32) & -65536) + 65536).view(torch.float32)
    assert bool(((rounded == toward_zero) | (rounded == away)).all())
    if torch.equal(exact, toward_zero):
        assert torch.equal(rounded, exact)


def test_rounding_is_unbiased_and_keeps_what_is_not_finite():
    """A value a quarter of the way up is rounded up a quarter of the time; infinities and NaN stay as they are."""
    value = torch.full((100_000,), 1.0 + 2.0**-9)
    rounded = round_stochastically(value, torch.Generator().manual_seed(0)).float()
    up = (rounded == 1.0 + 2.0**-7).double().mean().item()
    assert up == pytest.approx(0.25, abs=0.006)  # four standard deviations
    odd = torch.tensor([float("inf"), -float("inf"), float("nan")])
    kept = round_stochastically(odd, torch.Generator().manual_seed(0))
    assert kept[0] == float("inf")
    assert kept[1] == -float("inf")
    assert kept[2].isnan()


def test_one_seed_gives_one_run():
    """The same seed gives the same bits, another seed other bits."""
    runs = [drift(OPTIMIZERS["sgd"], lambda o, s=s: StochasticRounding(o, s), torch.bfloat16)[0] for s in (7, 7, 8)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("wrap", [KahanSum, StochasticRounding])
def test_chunks_do_not_show(wrap):
    """Any chunk size gives the same weights and state, mixed dtypes and several groups included."""
    results = []
    for chunk in (1, 40, 2**24):
        torch.manual_seed(0)
        parameters = [
            nn.Parameter(torch.randn(n).to(d))
            for n, d in ((30, torch.bfloat16), (20, torch.float32), (10, torch.bfloat16))
        ]
        groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 1e-2}]
        optimizer = wrap(torch.optim.AdamW(groups, 1e-3), chunk=chunk)
        for _ in range(5):
            for p in parameters:
                p.grad = torch.randn_like(p)
            optimizer.step()
        assert [g["params"] for g in optimizer.param_groups] == [parameters[:2], parameters[2:]]
        assert set(optimizer.state) == set(parameters)
        results.append((parameters, [optimizer.state[p]["exp_avg"] for p in parameters]))
    for weights, state in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(weights, results[0][0], strict=True))
        assert all(torch.equal(a, b) for a, b in zip(state, results[0][1], strict=True))


def test_an_optimizer_that_fails_leaves_the_groups_as_they_were():
    """An error in the wrapped step puts weights and state back in place."""
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = KahanSum(torch.optim.SGD([weight], 0.1, momentum=0.9))
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = "fast"
    with pytest.raises(TypeError):
        optimizer.step()
    assert optimizer.param_groups[0]["params"] == [weight]
    assert list(optimizer.state) == [weight]


@pytest.mark.parametrize("wrap", [KahanSum, StochasticRounding])
def test_a_schedule_may_hold_the_wrapper_or_the_wrapped(wrap):
    """Groups are shared, so a learning rate set through either is the one that is used."""
    for of in (lambda wrapper: wrapper, lambda wrapper: wrapper.optimizer):
        weight = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
        optimizer = wrap(torch.optim.SGD([weight], 1.0))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(of(optimizer), 0.5)
        weight.grad = torch.full_like(weight, 0.25)
        optimizer.step()
        scheduler.step()
        optimizer.step()
        assert weight.item() == 1.0 - 0.25 - 0.125


def test_groups_may_be_added():
    """A later group is the wrapped optimizer's, with its defaults."""
    first, second = (nn.Parameter(torch.ones(1, dtype=torch.bfloat16)) for _ in range(2))
    optimizer = KahanSum(torch.optim.SGD([first], 0.5))
    optimizer.add_param_group({"params": [second]})
    second.grad = torch.ones_like(second)
    optimizer.step()
    assert second.item() == 0.5
    optimizer.zero_grad()
    assert second.grad is None


@pytest.mark.parametrize("wrap", [KahanSum, StochasticRounding])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_saved_optimizer_continues_bit_for_bit(wrap, make):
    """State keeps its float32, which torch's own loading would round to the weights' bf16."""
    weight, optimizer = drift(make, wrap, torch.bfloat16, steps=5)
    again = nn.Parameter(weight.detach().clone())
    resumed = wrap(make([again]))
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        gradient = torch.randn(weight.shape, generator=generator).bfloat16()
        weight.grad, again.grad = gradient, gradient.clone()
        optimizer.step()
        resumed.step()
    assert torch.equal(weight, again)
    mine, theirs = optimizer.state_dict()["state"], resumed.state_dict()["state"]
    for key, value in mine[0].items():
        assert torch.equal(value, theirs[0][key])
        assert value.dtype is theirs[0][key].dtype


def test_what_cannot_be_wrapped_is_refused():
    """LBFGS, stacked wrappers, fp16 weights, closures and foreign states, each next to what is accepted."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    sgd = torch.optim.SGD([weight], 0.1)
    with pytest.raises(InvalidValueError, match=r"optimizer is 'LBFGS'; accepted is a torch optimizer to wrap"):
        KahanSum(torch.optim.LBFGS([weight]))
    with pytest.raises(InvalidValueError, match=r"optimizer is 'KahanSum'.*wrappers are not stacked"):
        StochasticRounding(KahanSum(sgd))
    with pytest.raises(InvalidValueError, match=r"dtype is torch.float16; .*use Precision\('fp16-master'"):
        KahanSum(torch.optim.SGD([nn.Parameter(torch.ones(1).half())], 0.1))
    with pytest.raises(InvalidValueError, match=r"chunk is 0; accepted is a number of elements, 1 or more"):
        KahanSum(sgd, chunk=0)
    wrapped = StochasticRounding(sgd)
    with pytest.raises(InvalidValueError, match=r"closure is .*Compute the loss and its gradients before the step"):
        wrapped.step(lambda: 0.0)
    with pytest.raises(CheckpointError, match=r"no generators: it was not saved from StochasticRounding"):
        wrapped.load_state_dict(KahanSum(sgd).state_dict())
    wrapped.load_state_dict(wrapped.state_dict())
    wrapped.step()
