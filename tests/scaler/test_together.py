"""A step of several optimizers is applied to all of them or to none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mixprec import GradScaler
from mixprec.errors import InvalidValueError
from mixprec.records import StepReason

INF = float("inf")
MAKERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.1),
    "fused": lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
    "fused_momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
}
PAIRS = pytest.mark.parametrize("pair", [("sgd", "fused"), ("fused_momentum", "adamw"), ("fused", "fused")], ids=str)


def pair_of(pair: tuple[str, str]) -> tuple[list[nn.Parameter], list[torch.optim.Optimizer]]:
    weights = [nn.Parameter(torch.full((4,), 2.0)), nn.Parameter(torch.full((3, 2), 3.0))]
    return weights, [MAKERS[kind]([weight]) for kind, weight in zip(pair, weights, strict=True)]


@PAIRS
@pytest.mark.parametrize("poisoned", [0, 1])
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_an_infinity_in_one_skips_all(pair: tuple[str, str], poisoned: int, max_norm: float | None) -> None:
    """Both keep their parameters, both reports say so, and the scale backs off once."""
    weights, optimizers = pair_of(pair)
    scaler = GradScaler("cpu", init_scale=16.0)
    before = [weight.detach().clone() for weight in weights]
    scaler.scale(sum(w.sum() * (INF if i == poisoned else 1.0) for i, w in enumerate(weights))).backward()
    reports = scaler.step_together(optimizers, max_norm=max_norm)
    scaler.update()
    assert [report.reason for report in reports] == [StepReason.FOUND_INF] * 2
    assert all(map(torch.equal, before, weights))
    assert scaler.get_scale() == 8.0
    for optimizer in optimizers:
        optimizer.zero_grad()
    scaler.scale(sum(w.sum() for w in weights)).backward()
    assert all(scaler.step_together(optimizers, max_norm=max_norm))
    scaler.update()
    assert not any(map(torch.equal, before, weights))


@PAIRS
def test_clipping_is_by_the_norm_of_all(pair: tuple[str, str]) -> None:
    """As clip_grad_norm_ over both models; also where one of them was unscaled before."""
    for unscaled in (False, True):
        weights, optimizers = pair_of(pair)
        controls, control_optimizers = pair_of(pair)
        scaler = GradScaler("cpu", init_scale=16.0)
        scaler.scale(sum(w.square().sum() for w in weights)).backward()
        if unscaled:
            scaler.unscale_(optimizers[1])
        first, second = scaler.step_together(optimizers, max_norm=0.25)
        sum(w.square().sum() for w in controls).backward()  # type: ignore[union-attr] # a tensor
        norm = nn.utils.clip_grad_norm_(controls, 0.25)
        for optimizer in control_optimizers:
            optimizer.step()
        assert first.grad_norm == second.grad_norm == pytest.approx(norm.item())
        torch.testing.assert_close(weights, controls)


def test_one_without_gradients_sits_out() -> None:
    """Its report says why; if none has a gradient, that is torch's assertion."""
    weights, optimizers = pair_of(("sgd", "fused"))
    scaler = GradScaler("cpu", init_scale=16.0)
    scaler.scale(weights[0].sum()).backward()
    first, second = scaler.step_together(optimizers)
    assert (first.reason, second.reason) == (StepReason.APPLIED, StepReason.NO_GRADIENTS)
    scaler.update()
    weights[0].grad = None
    with pytest.raises(AssertionError, match=r"No inf checks were recorded for this optimizer\."):
        scaler.step_together(optimizers)


def test_the_state_machine_counts_each_of_them() -> None:
    """A second step before update is torch's error, and one optimizer twice is refused."""
    weights, optimizers = pair_of(("sgd", "fused"))
    scaler = GradScaler("cpu", init_scale=16.0)
    scaler.scale(sum(w.sum() for w in weights)).backward()
    with pytest.raises(InvalidValueError, match="each optimizer once"):
        scaler.step_together([optimizers[0], optimizers[0]])
    scaler.step_together(optimizers)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update"):
        scaler.step(optimizers[1])
    scaler.update()


def test_an_unscale_that_found_something_skips_all() -> None:
    """What `unscale_` of one of them judged counts for the group."""
    weights, optimizers = pair_of(("sgd", "fused"))
    scaler = GradScaler("cpu", init_scale=16.0)
    scaler.scale(weights[0].sum() * INF + weights[1].sum()).backward()
    scaler.unscale_(optimizers[0])
    assert not any(scaler.step_together(optimizers))
    assert weights[1].eq(3.0).all()


@pytest.mark.parametrize("max_norm", [None, 0.25])
def test_a_disabled_scaler_steps_them_all(max_norm: float | None) -> None:
    """With the joint norm if there is one."""
    weights, optimizers = pair_of(("sgd", "fused"))
    scaler = GradScaler("cpu", enabled=False)
    sum(w.square().sum() for w in weights).backward()  # type: ignore[union-attr] # a tensor
    reports: tuple[Any, ...] = scaler.step_together(optimizers, max_norm=max_norm)
    assert all(reports)
    if max_norm is not None:
        assert reports[0].grad_norm == reports[1].grad_norm
