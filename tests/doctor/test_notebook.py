"""A step that exists only in this process is examined as a script is, and everything is put back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mixprec.doctor import examine
from mixprec.errors import InvalidValueError


def training(gain: float = 1.0):
    """(step, state): a step whose second layer overflows float16 where `gain` is large."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    with torch.no_grad():
        model[2].weight.mul_(gain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")

    def step():
        x = torch.randn(16, 8)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(x).float(), x[:, :1])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step, (model, optimizer, scaler)


def test_an_overflow_is_found_and_located():
    """The verdict is the catalogue's code for it, confirmed by the control in FP32, at the module."""
    step, state = training(gain=1e6)

    found = examine(step, state, steps=12)

    assert found.verdict is not None
    assert (found.verdict.code, found.verdict.location.module) == ("MP030", "2")
    assert found.verdict.confidence.value == "confirmed by control"
    assert found.exit_code == 1
    smallest = found.verdict.evidence[-1]
    assert (smallest.what, smallest.value) == ("smallest part that has to compute in float32", "2 (Linear)")
    assert found.verdict.fix_tried is not None
    assert found.verdict.fix_tried.value == "is healthy"
    assert not any("forward" in vars(module) for module in state[0].modules())


def test_a_healthy_step_has_nothing_wrong_and_everything_is_put_back():
    """Weights, state, scale, random state, and torch itself are what they were."""
    step, state = training()
    weights = [p.clone() for p in state[0].parameters()]
    random = torch.get_rng_state()
    names = {
        owner: dict(vars(owner)) for owner in (torch.autocast, torch.amp.GradScaler, torch.optim.AdamW, torch.Tensor)
    }

    found = examine(step, state, steps=12)

    assert found.healthy, found.verdicts
    assert all(torch.equal(p, w) for p, w in zip(state[0].parameters(), weights, strict=True))
    assert state[1].state_dict()["state"] == {}
    assert torch.equal(torch.get_rng_state(), random)
    for owner, before in names.items():
        assert all(vars(owner).get(name) is value for name, value in before.items())


def test_a_step_that_raises_is_a_crash_with_its_line():
    """The examination goes on to the report with the script's own error as the problem."""
    _, state = training()

    def step():
        raise KeyError("absent")

    found = examine(step, state, steps=3)

    assert found.exit_code == 2
    assert "KeyError: 'absent'" in (found.problem or "")


def test_what_cannot_be_saved_is_refused():
    """The error says what is accepted; the nearest accepted thing is a module."""
    with pytest.raises(InvalidValueError, match="state is 'list'; accepted is objects with state_dict"):
        examine(lambda: None, [[1]])
