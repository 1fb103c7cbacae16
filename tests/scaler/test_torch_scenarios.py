"""The scenarios of PyTorch's own scaler tests, in our words, on PyTorch's own models and data, against our scaler."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import OptState, _refresh_per_optimizer_state
from torch.testing._internal.common_cuda import _create_scaling_case

from mixprec import GradScaler

OPTIMIZERS = pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.optim.SGD, {"foreach": False}),
        (torch.optim.SGD, {"foreach": True}),
        (torch.optim.SGD, {"fused": True}),
        (torch.optim.SGD, {"fused": True, "momentum": 0.9}),
        (torch.optim.Adam, {"foreach": False}),
        (torch.optim.Adam, {"foreach": True, "weight_decay": 0.1}),
        (torch.optim.Adam, {"fused": True, "amsgrad": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.Adagrad, {"fused": True}),
        (torch.optim.Adagrad, {}),
    ],
)

Run = Callable[..., None]


def scaler_for(**arguments: Any) -> GradScaler:
    return GradScaler("cpu", init_scale=128.0, growth_factor=2.0, growth_interval=1, **arguments)


def compare(run: Run, make: Any, options: dict[str, Any], skip: int, atol: float = 1e-5) -> None:
    """Runs control and scaled training; parameters, gradients' finiteness and state must match, and the scale moved."""
    torch.manual_seed(1)
    options = {"lr": 0.1, **options}
    mod_control, mod_scaling, opt_control, opt_scaling, data, loss_fn, _ = _create_scaling_case(
        "cpu", optimizer_ctor=make, optimizer_kwargs=options
    )
    scaler = scaler_for()
    run(data, mod_control, opt_control, scaler_for(enabled=False), loss_fn, skip, False)
    run(data, mod_scaling, opt_scaling, scaler, loss_fn, skip, True)
    # as many growths as steps, one of them a back-off instead
    expected = 128.0 * 2.0 ** (len(data) - 1) * 0.5
    assert scaler.get_scale() == expected
    for control, scaling in zip(mod_control.parameters(), mod_scaling.parameters(), strict=True):
        torch.testing.assert_close(control, scaling, atol=atol, rtol=1e-5)
        ours, theirs = opt_scaling.state[scaling], opt_control.state[control]
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            if value is not None:
                torch.testing.assert_close(ours[key], value, atol=atol, rtol=1e-5)


@OPTIMIZERS
def test_a_skipped_iteration_is_as_if_it_had_not_been(make: Any, options: dict[str, Any]) -> None:
    """One infinity in one gradient at iteration 2: parameters and optimizer state are those of three clean steps."""

    def run(data: Any, model: Any, optimizer: Any, scaler: Any, loss_fn: Any, skip: int, scaled: bool) -> None:
        for i, (inputs, target) in enumerate(data):
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), target)
            if scaled:
                scaler.scale(loss).backward()
                if i == skip:
                    model[1].weight.grad.data.fill_(float("inf"))
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                if i != skip:
                    optimizer.step()

    compare(run, make, options, 2)


@OPTIMIZERS
def test_the_first_iteration_may_be_the_skipped_one(make: Any, options: dict[str, Any]) -> None:
    """Overflow in the very first step leaves no trace in any optimizer's state, fused SGD's momentum included."""

    def run(data: Any, model: Any, optimizer: Any, scaler: Any, loss_fn: Any, skip: int, scaled: bool) -> None:
        for i, (inputs, target) in enumerate(data):
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), target)
            if scaled:
                scaler.scale(loss * (math.inf if i == skip else 1.0)).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                if i != skip:
                    optimizer.step()

    compare(run, make, options, 0)


@OPTIMIZERS
@pytest.mark.parametrize("separate", [False, True])
def test_clipping(make: Any, options: dict[str, Any], separate: bool) -> None:
    """Clipping scaled gradients at scale × limit, or unscaled ones at the limit, is clipping without a scaler."""
    limit = 0.2

    def run(data: Any, model: Any, optimizer: Any, scaler: Any, loss_fn: Any, skip: int, scaled: bool) -> None:
        for i, (inputs, target) in enumerate(data):
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), target)
            if not scaled:
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), limit)
                if i != skip:
                    optimizer.step()
                continue
            scaler.scale(loss).backward()
            if separate:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), limit)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), limit * scaler.get_scale())
            if i == skip and not separate:
                model[1].weight.grad.data.fill_(float("inf"))
            elif i == skip:
                scaler._found_inf_per_device(optimizer)[torch.device("cpu")].fill_(1.0)
            scaler.step(optimizer)
            scaler.update()

    compare(run, make, options, 2)


@OPTIMIZERS
def test_max_norm_is_clipping_between_unscale_and_step(make: Any, options: dict[str, Any]) -> None:
    """`step(max_norm=...)` gives the parameters of clip_grad_norm_ without a scaler."""

    def run(data: Any, model: Any, optimizer: Any, scaler: Any, loss_fn: Any, skip: int, scaled: bool) -> None:
        for i, (inputs, target) in enumerate(data):
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), target)
            if scaled:
                scaler.scale(loss).backward()
                if i == skip:
                    model[1].weight.grad.data.fill_(float("nan"))
                scaler.step(optimizer, max_norm=0.2)
                scaler.update()
            else:
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.2)
                if i != skip:
                    optimizer.step()

    compare(run, make, options, 2)


@OPTIMIZERS
def test_gradient_penalty(make: Any, options: dict[str, Any]) -> None:
    """A penalty on gradients that were unscaled by hand, inside the loss."""

    def run(data: Any, model: Any, optimizer: Any, scaler: Any, loss_fn: Any, skip: int, scaled: bool) -> None:
        for i, (inputs, target) in enumerate(data):
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), target)
            wanted = scaler.scale(loss) if scaled else loss
            grads = torch.autograd.grad(wanted, model.parameters(), create_graph=True)
            grads = [g / scaler.get_scale() for g in grads]
            loss = loss + torch.stack([g.pow(2).sum() for g in grads]).sum().sqrt()
            (scaler.scale(loss) if scaled else loss).backward()
            if scaled:
                if i == skip:
                    model[1].weight.grad.data.fill_(float("inf"))
                scaler.step(optimizer)
                scaler.update()
            elif i != skip:
                optimizer.step()

    compare(run, make, options, 2)


@OPTIMIZERS
def test_accumulation(make: Any, options: dict[str, Any]) -> None:
    """Two backward passes per step; the scale does not move between them."""
    torch.manual_seed(1)
    mod_control, mod_scaling, opt_control, opt_scaling, data, loss_fn, _ = _create_scaling_case(
        "cpu", optimizer_ctor=make, optimizer_kwargs={"lr": 0.1, **options}
    )
    scaler = scaler_for()
    for model, optimizer, scaled in ((mod_control, opt_control, False), (mod_scaling, opt_scaling, True)):
        for i, (inputs, target) in enumerate(data):
            loss = loss_fn(model(inputs), target) / 2
            (scaler.scale(loss) if scaled else loss).backward()
            if i % 2 == 0:
                continue
            if scaled:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()
    assert scaler.get_scale() == 128.0 * 2.0**2
    for control, scaling in zip(mod_control.parameters(), mod_scaling.parameters(), strict=True):
        torch.testing.assert_close(control, scaling, atol=1e-5, rtol=1e-5)


@OPTIMIZERS
def test_two_models_two_optimizers_two_losses(make: Any, options: dict[str, Any]) -> None:
    """An infinity in one optimizer's gradients skips that one, steps the other, and backs the common scale off once."""
    torch.manual_seed(1)
    case = [_create_scaling_case("cpu", optimizer_ctor=make, optimizer_kwargs={"lr": 0.1, **options}) for _ in "ab"]
    (control_a, scaling_a, opt_control_a, opt_scaling_a, data, loss_fn, skip) = case[0]
    (control_b, scaling_b, opt_control_b, opt_scaling_b, *_) = case[1]
    scaler = scaler_for()
    for a, b, opt_a, opt_b, scaled in (
        (control_a, control_b, opt_control_a, opt_control_b, False),
        (scaling_a, scaling_b, opt_scaling_a, opt_scaling_b, True),
    ):
        for i, (inputs, target) in enumerate(data):
            opt_a.zero_grad()
            opt_b.zero_grad()
            out_a, out_b = a(inputs), b(inputs)
            loss_a, loss_b = loss_fn(2 * out_a + 3 * out_b, target), loss_fn(3 * out_a - 5 * out_b, target)
            if scaled:
                scaler.scale(loss_a).backward(retain_graph=True)
                scaler.scale(loss_b).backward()
                if i == skip:
                    a[1].weight.grad.data.fill_(float("inf"))
                scaler.step(opt_a)
                scaler.step(opt_b)
                scaler.update()
            else:
                loss_a.backward(retain_graph=True)
                loss_b.backward()
                if i != skip:
                    opt_a.step()
                opt_b.step()
    assert scaler.get_scale() == 128.0 * 2.0**3 * 0.5
    for control, scaling in ((control_a, scaling_a), (control_b, scaling_b)):
        for p, q in zip(control.parameters(), scaling.parameters(), strict=True):
            torch.testing.assert_close(p, q, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scaler_type", [torch.amp.GradScaler, GradScaler])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("fused", [False, True])
def test_gradients_broken_between_unscale_and_step_break_the_parameters(
    scaler_type: Any, value: float, fused: bool
) -> None:
    """Pinned by PyTorch's suite: what unscale_ has judged is not judged again."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = torch.optim.Adam([weight], fused=fused), scaler_type("cpu")
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    weight.grad[0] = value
    scaler.step(optimizer)
    scaler.update()
    assert not weight.isfinite().all()


def test_unscale_grads_finds_every_kind_of_infinity_in_every_dtype() -> None:
    """The private method that PyTorch's suite calls: float16 is refused unless allowed, the rest is checked."""
    scaler, inverse = GradScaler("cpu"), torch.full((1,), 0.25)
    for dtypes, where, value in [
        ((torch.float32, torch.float32), None, 0.0),
        ((torch.float32, torch.float32), 0, float("inf")),
        ((torch.float32, torch.bfloat16), 1, float("nan")),
        ((torch.float64, torch.float32), 1, float("-inf")),
    ]:
        params = [nn.Parameter(torch.ones(2, 2, dtype=dtype)) for dtype in dtypes]
        for param in params:
            param.grad = torch.full_like(param, 4.0)
        if where is not None:
            params[where].grad[1, 1] = value
        optimizer = torch.optim.SGD(params, lr=0.1)
        found = scaler._unscale_grads_(optimizer, inverse, torch.full((1,), 0.0), False)[torch.device("cpu")]
        assert found.item() == (0.0 if where is None else 1.0)
        assert all(param.grad[0, 0] == 1.0 for param in params)
    half = nn.Parameter(torch.ones(2, dtype=torch.float16))
    half.grad = torch.full_like(half, 4.0)
    optimizer = torch.optim.SGD([half], lr=0.1)
    with pytest.raises(ValueError, match=r"^Attempting to unscale FP16 gradients\."):
        scaler._unscale_grads_(optimizer, inverse, torch.full((1,), 0.0), False)
    scaler._unscale_grads_(optimizer, inverse, torch.full((1,), 0.0), True)
    assert half.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("value", [None, float("inf"), float("nan")])
def test_unscale_grads_of_sparse_gradients(dtype: torch.dtype, value: float | None) -> None:
    """Sparse values are unscaled and checked; float16 duplicates are added up first, where they may overflow."""
    scaler = GradScaler("cpu")
    indices = torch.tensor([[0, 1, 0], [2, 0, 2]])
    values = torch.tensor([16.0, 32.0, 64.0 if value is None else value], dtype=dtype)
    param = nn.Parameter(torch.zeros(2, 3, dtype=dtype))
    param.grad = torch.sparse_coo_tensor(indices, values, (2, 3), check_invariants=True)
    optimizer = torch.optim.SGD([param], lr=1.0)
    found = scaler._unscale_grads_(optimizer, torch.tensor(0.25), torch.tensor(0.0), True)[torch.device("cpu")]
    assert found.item() == (0.0 if value is None else 1.0)
    if value is None:
        assert param.grad.to_dense().tolist() == [[0.0, 0.0, 20.0], [8.0, 0.0, 0.0]]
    if dtype is torch.float16 and value is None:
        param.grad = torch.sparse_coo_tensor(
            indices, torch.tensor([4e4, 1.0, 4e4], dtype=dtype), (2, 3), check_invariants=True
        )
        found = scaler._unscale_grads_(optimizer, torch.tensor(0.25), torch.tensor(0.0), True)[torch.device("cpu")]
        assert found.item() == 1.0


@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_sparse_embedding_trains_as_without_a_scaler(max_norm: float | None) -> None:
    """Duplicated indices included, clipped or not, with an overflow in the middle."""
    results = []
    for scaled in (False, True):
        torch.manual_seed(0)
        embedding = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
        scaler = scaler_for(enabled=scaled)
        for step in range(4):
            optimizer.zero_grad()
            loss = embedding(torch.tensor([1, 2, 1, step])).square().sum()
            if scaled:
                scaler.scale(loss * (float("nan") if step == 2 else 1.0)).backward()
                scaler.step(optimizer, max_norm=max_norm)
                scaler.update()
                continue
            loss.backward()
            grad = embedding.weight.grad.coalesce()
            if max_norm is not None:
                grad._values().mul_(min(1.0, max_norm / (grad._values().norm().item() + 1e-6)))
            embedding.weight.grad = grad
            if step != 2:
                optimizer.step()
        results.append(embedding.weight.detach())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("scaler_type", [torch.amp.GradScaler, GradScaler])
def test_an_optimizer_that_takes_the_scaler_gets_it(scaler_type: Any) -> None:
    """The older contract: `step(grad_scaler=...)`, with the warning that it goes away."""
    seen: list[Any] = []

    class Takes(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, *args: Any, grad_scaler: Any = None) -> None:  # type: ignore[override] # the contract's own
            seen.append(grad_scaler)
            grad_scaler._check_inf_per_device(self)

    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = Takes([weight], lr=0.1), scaler_type("cpu")
    scaler.scale(weight.sum()).backward()
    with pytest.warns(FutureWarning, match="stop passing itself") as caught:
        scaler.step(optimizer)
    scaler.update()
    assert seen == [scaler]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("scaler_type", [torch.amp.GradScaler, GradScaler])
@pytest.mark.parametrize("unscale", [False, True])
def test_a_contract_optimizer_sees_scale_and_flag(scaler_type: Any, unscale: bool) -> None:
    """`grad_scale` is the scale times a preset one, or the preset one after unscale_; both attributes go afterwards."""
    seen: list[tuple[float | None, float]] = []

    class Contract(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, *args: Any) -> None:  # type: ignore[override] # the contract's own
            scale = self.grad_scale
            seen.append((None if scale is None else float(scale), float(self.found_inf)))

    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = Contract([weight], lr=0.1), scaler_type("cpu", init_scale=8.0)
    for preset, factor in ((None, 1.0), (4.0, 1.0), (None, float("inf"))):
        weight.grad = None
        scaler.scale(weight.sum() * factor).backward()
        if preset is not None:
            optimizer.grad_scale = torch.tensor(preset)  # type: ignore[attr-defined] # the contract's
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert not hasattr(optimizer, "grad_scale")
        assert not hasattr(optimizer, "found_inf")
    assert seen[:2] == ([(None, 0.0), (4.0, 0.0)] if unscale else [(8.0, 0.0), (32.0, 0.0)])
    assert seen[2][1] == 1.0


def test_private_names_that_other_code_uses_mean_what_they_mean() -> None:
    """`_scale`, `_growth_tracker`, `_init_growth_tracker`, `_per_optimizer_states` are torch's."""
    scaler = GradScaler("cpu", init_scale=4.0)
    assert (scaler._init_scale, scaler._init_growth_tracker, scaler._scale, scaler._growth_tracker) == (
        4.0,
        0,
        None,
        None,
    )
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale(weight.sum()).backward()
    assert (scaler._scale.dtype, scaler._growth_tracker.dtype) == (torch.float32, torch.int32)
    assert isinstance(scaler._per_optimizer_states, defaultdict)
    assert scaler._per_optimizer_states[id(optimizer)] == _refresh_per_optimizer_state()
    scaler.unscale_(optimizer)
    state = scaler._per_optimizer_states[id(optimizer)]
    assert state["stage"] is OptState.UNSCALED
    assert {device.type: flag.item() for device, flag in state["found_inf_per_device"].items()} == {"cpu": 0.0}
    scaler._scale.fill_(2.0)
    assert scaler.get_scale() == 2.0
    scaler._growth_tracker.fill_(7)
    assert scaler.state_dict()["_growth_tracker"] == 7


def test_sums_on_accelerator_flags_do_not_exceed_one() -> None:
    """A fused CPU kernel skips only at exactly 1, so flags of several devices are not added up."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = torch.optim.AdamW([weight], fused=True), GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    flags = scaler._found_inf_per_device(optimizer)
    flags[torch.device("cpu")].fill_(1.0)
    flags["another"] = torch.ones(())
    scaler.step(optimizer)
    assert weight.tolist() == [1.0] * 4
