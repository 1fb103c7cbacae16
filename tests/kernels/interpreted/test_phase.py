"""A whole step with Triton's kernels is the step with PyTorch's, and takes three launches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from mixprec import GradScaler, Precision
from mixprec._kernels import Kernels
from mixprec._kernels._triton import _adamw, _multiply, _read

OPTIMIZERS = {
    "fused AdamW": lambda params: torch.optim.AdamW(params, lr=1e-2, fused=True),
    "plain SGD": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9),
}


def train(kernels, kind, max_norm, *, unscale=False, together=False):
    """8 steps, of which two overflow; parameters and reports."""
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((40, 30), (30,), (0,), ())]
    optimizers = [OPTIMIZERS[kind](held) for held in ((params[:2], params[2:]) if together else (params,))]
    scaler = GradScaler("cpu", init_scale=1000.0, growth_interval=3, kernels=kernels)
    reports = []
    for step in range(8):
        noise = torch.randn(40, generator=generator)
        loss = (noise @ params[0] * params[1]).square().mean() + params[3].square()
        scaler.scale(loss * (math.inf if step in (0, 5) else 1.0)).backward()
        if unscale:
            scaler.unscale_(optimizers[0])
        if together:
            scaler.step_together(optimizers, max_norm=max_norm)
        else:
            scaler.step(optimizers[0], max_norm=max_norm)
        scaler.update()
        reports.append(scaler.report(optimizers[0]))
        for param in params:
            param.grad = None
    return params, reports


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("max_norm", [None, 0.5, math.inf])
@pytest.mark.parametrize("how", [{}, {"unscale": True}, {"together": True}], ids=["step", "unscale first", "together"])
def test_training_is_the_same(kind, max_norm, how):
    """Steps applied, scales, norms and parameters: to the bit without clipping, else but for how norms are added up."""
    params, reports = train("triton", kind, max_norm, **how)
    expected, expected_reports = train("foreach", kind, max_norm, **how)

    assert {report.applied for report in reports} == {True, False}
    assert [r.applied for r in reports] == [r.applied for r in expected_reports]
    assert [r.scale_after for r in reports] == [r.scale_after for r in expected_reports]
    for report, other in zip(reports, expected_reports, strict=True):
        if report.applied and max_norm is not None:
            assert report.grad_norm == pytest.approx(other.grad_norm, rel=1e-6)
            assert report.clip_coefficient == pytest.approx(other.clip_coefficient, rel=1e-6)
    for param, other in zip(params, expected, strict=True):
        torch.testing.assert_close(param, other, rtol=1e-5, atol=1e-6)
        if max_norm is None:
            assert torch.equal(param, other)


class Ops(TorchDispatchMode):
    """The names of PyTorch's ops that read or write elements."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if not views and "empty" not in str(func) and "profiler" not in str(func):
            self.names.append(str(func.overloadpacket).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def launches(monkeypatch):
    """The names of the kernels that were launched."""
    names: list[str] = []
    for module in (_read, _multiply, _adamw):
        launch = module.launch

        def counted(kernel, *args, launch=launch, **constants):
            names.append(kernel.__name__)
            with _disable_current_modes():  # the interpreter works with tensors, too
                launch(kernel, *args, **constants)

        monkeypatch.setattr(module, "launch", counted)
    return names


def gradients_of(scaler, kind):
    """An optimizer whose parameters have scaled gradients, after a first step that made state and tables."""
    params = [nn.Parameter(torch.ones(300)), nn.Parameter(torch.ones(7))]
    optimizer = OPTIMIZERS[kind](params)
    for _ in range(2):
        scaler.scale(sum(param.square().sum() for param in params)).backward()
        yield optimizer
        scaler.update()
        optimizer.zero_grad()


def test_a_plain_optimizer_s_phase_is_three_launches(launches):
    """Clip and unscale: read, finish, multiply, and a flag that is cleared for it; then the optimizer's own."""
    scaler = GradScaler("cpu", kernels=Kernels.TRITON)
    for optimizer in gradients_of(scaler, "plain SGD"):
        launches.clear()
        with Ops() as ops:
            scaler.step(optimizer, max_norm=0.1)
    assert launches == ["_partial", "_finish", "_multiply"]
    own = {"mul_", "add_"}
    assert set(ops.names) - own <= {"zeros_like", "clone", "_local_scalar_dense", "_to_copy"}


def test_a_fused_optimizer_s_phase_is_two_launches(launches):
    """Read and finish; nothing is computed between them and the optimizer's own kernels."""
    scaler = GradScaler("cpu", kernels=Kernels.TRITON)
    for optimizer in gradients_of(scaler, "fused AdamW"):
        launches.clear()
        with Ops() as ops:
            scaler.step(optimizer, max_norm=0.1)
    assert launches == ["_partial", "_finish"]
    own = {"_foreach_add_", "_fused_adamw_", "_foreach_sub_"}
    assert set(ops.names) - own <= {"_local_scalar_dense", "_to_copy"}


def masters(kernels, mode, max_norm):
    """6 steps with 16-bit weights, one of which overflows; the model's and the optimizer's state, and reports."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 5))
    decayed, rest = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed}, {"params": rest, "weight_decay": 0.0, "lr": 1e-2}]
    optimizer = torch.optim.AdamW(groups, fused=True)
    precision = Precision(mode, optimizer, model=model, max_norm=max_norm, kernels=kernels)
    reports = []
    for step in range(6):
        with precision.autocast():
            loss = model(torch.randn(8, 20)).float().square().mean()
        precision.backward(loss * (math.inf if step == 2 else 1.0))
        reports.append(precision.step())
    return model, optimizer, reports


@pytest.mark.parametrize("mode", ["fp16-master", "bf16-master"])
@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_training_with_masters_is_the_same(mode, max_norm, launches):
    """Which steps are applied, moments, counts and weights are those of PyTorch's kernels but for a rounding."""
    model, optimizer, reports = masters("triton", mode, max_norm)
    assert launches.count("_step") == launches.count("_count") == 6
    assert "_multiply" not in launches
    expected, expected_optimizer, expected_reports = masters("foreach", mode, max_norm)

    for each in (reports, expected_reports):
        assert [report.applied for report in each] == [True, True, False, True, True, True]
    held, others = (o.state_dict()["state"] for o in (optimizer, expected_optimizer))
    for index, state in held.items():
        assert state["step"] == others[index]["step"] == 5.0
        torch.testing.assert_close(state["exp_avg"], others[index]["exp_avg"], rtol=1e-5, atol=1e-8)
    for weight, other in zip(model.state_dict().values(), expected.state_dict().values(), strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-2, atol=1e-3)


def test_the_master_phase_is_four_launches_and_copies_no_gradient(launches):
    """Read, finish, counts, step: no float32 gradient is made, and no weight is published apart."""
    torch.manual_seed(0)
    model = nn.Linear(20, 30)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    precision = Precision("bf16-master", optimizer, model=model, max_norm=0.1, kernels="triton")
    for _ in range(2):
        with precision.autocast():
            loss = model(torch.randn(8, 20)).float().square().mean()
        precision.backward(loss)
        launches.clear()
        with Ops() as ops:
            precision.step()
    assert launches == ["_partial", "_finish", "_count", "_step"]
    assert not {"_foreach_copy_", "copy_", "_fused_adamw_"} & set(ops.names)
