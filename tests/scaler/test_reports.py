"""A report tells the truth about every step, right for fused optimizers, and costs a sync only when it is read."""

from __future__ import annotations

import gc
import math
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from mixprec import GradScaler
from mixprec._gradients import WaitlessReader
from mixprec._kernels import _means
from mixprec._scaler import _reports
from mixprec.errors import InvalidValueError
from mixprec.records import StepReason

INF = float("inf")
OPTIMIZERS = pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.SGD(params, lr=0.1),
        lambda params: torch.optim.AdamW(params, lr=0.1),
        lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
    ],
    ids=["sgd", "adamw", "fused adamw", "fused sgd"],
)
READERS = pytest.mark.parametrize("waitless", [False, True], ids=["host", "accelerator"])


@pytest.fixture
def as_accelerator(waitless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has CPU tensors handled as those of an accelerator are."""
    if waitless:
        monkeypatch.setattr(_means, "reader_for", lambda devices, *, below_one: WaitlessReader(below_one))
        monkeypatch.setattr(_reports, "on_host", lambda tensor: False)


@OPTIMIZERS
@READERS
@pytest.mark.parametrize("max_norm", [None, 0.5, math.inf])
@pytest.mark.usefixtures("as_accelerator")
def test_a_report_says_what_happened_to_the_parameters(make: Any, max_norm: float | None) -> None:
    """`applied` is whether they moved; scale, norm and coefficient are those of the step; tensors and numbers agree."""
    weight = nn.Parameter(torch.full((4,), 2.0))
    optimizer, scaler = make([weight]), GradScaler("cpu", init_scale=16.0, growth_interval=2)
    scale = 16.0
    for step, factor in enumerate((INF, 1.0, 1.0, float("nan"), 1.0)):
        optimizer.zero_grad()
        before = weight.detach().clone()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer, max_norm=max_norm)
        assert scaler.report(optimizer).scale_after is None
        scaler.update()
        report = scaler.report(optimizer)
        finite = math.isfinite(factor)
        assert report.applied is bool(report) is finite is not torch.equal(before, weight)
        assert report.found_inf is not finite
        assert report.reason is (StepReason.APPLIED if finite else StepReason.FOUND_INF)
        assert (report.step, report.scale_before, report.scale_after) == (step, scale, scaler.get_scale())
        if max_norm is not None and finite:
            assert report.grad_norm == pytest.approx(2.0)
            assert report.clip_coefficient == pytest.approx(min(1.0, max_norm / 2.0), rel=1e-5)
        tensors = report.on_device
        for name in ("found_inf", "scale_before", "scale_after", "grad_norm", "clip_coefficient"):
            tensor, number = getattr(tensors, name), getattr(report.values, name)
            assert (tensor is None) == (number is None), name
            if tensor is not None:
                assert (tensor.shape, tensor.dtype) == ((), torch.float32)
                assert tensor.item() == pytest.approx(number, nan_ok=True), name
        scale = scaler.get_scale()


@READERS
@pytest.mark.usefixtures("as_accelerator")
def test_a_report_kept_keeps_its_numbers() -> None:
    """Later steps, updates and changes of the scale do not reach back into it, read before or not."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = torch.optim.AdamW([weight], fused=True), GradScaler("cpu", init_scale=16.0)
    kept = []
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(weight.sum() * (INF if step % 2 else 1.0)).backward()
        scaler.step(optimizer, max_norm=1.0)
        kept.append(scaler.report(optimizer))
        scaler.update()
        scaler._scale.mul_(2.0)  # type: ignore[union-attr] # as code outside may
    assert [(r.scale_before, r.scale_after, r.applied) for r in kept] == [
        (16.0, 16.0, True),
        (32.0, 16.0, False),
        (32.0, 32.0, True),
        (64.0, 32.0, False),
    ]


def test_the_report_of_an_optimizer_never_stepped_is_an_error() -> None:
    """It says what to do; after a step there is one, also from a disabled scaler."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), GradScaler("cpu", enabled=False)
    with pytest.raises(InvalidValueError, match=r"that this scaler has stepped\. Call step first"):
        scaler.report(optimizer)
    weight.sum().backward()
    scaler.step(optimizer)
    report = scaler.report(optimizer)
    assert (report.applied, report.scale_before, report.scale_after) == (True, 1.0, 1.0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_disabled_scaler_clips_and_reports(fused: bool) -> None:
    """Clipping is asked for, so it is done; a step is taken whatever the gradients are, as torch's scaler does."""
    results = []
    for ours in (True, False):
        weight = nn.Parameter(torch.full((4,), 2.0))
        optimizer, scaler = torch.optim.AdamW([weight], fused=fused), GradScaler("cpu", enabled=False)
        for _ in range(3):
            optimizer.zero_grad()
            weight.square().sum().backward()
            if ours:
                scaler.step(optimizer, max_norm=0.5)
                assert scaler.report(optimizer).clip_coefficient < 0.1
            else:
                nn.utils.clip_grad_norm_([weight], 0.5)
                optimizer.step()
        results.append((weight.detach(), optimizer.state[weight]["exp_avg_sq"]))
    torch.testing.assert_close(*results)
    weight.grad = torch.full((4,), INF)
    scaler.step(optimizer, max_norm=0.5)
    assert scaler.report(optimizer).applied


def test_a_report_holds_no_optimizer_alive() -> None:
    """The scaler forgets optimizers that are gone."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


@READERS
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.usefixtures("as_accelerator")
def test_a_report_holds_no_graph(fused: bool) -> None:
    """Gradients made with create_graph carry a graph; what is computed from them does not."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = torch.optim.AdamW([weight], fused=fused), GradScaler("cpu", init_scale=16.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a graph and its gradients refer to each other
        scaler.scale(weight.square().sum()).backward(create_graph=True)
    assert weight.grad.requires_grad
    scaler.step(optimizer, max_norm=1.0)
    scaler.update()
    report = scaler.report(optimizer)
    assert report.applied
    assert not any(t.requires_grad for t in vars(report.on_device).values() if t is not None)
    weight.grad = None
