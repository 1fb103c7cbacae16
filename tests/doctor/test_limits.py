"""When an arm has seen enough: so many attempts of an optimizer, or as many as some seconds hold."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mixprec.doctor._recorder import _steps
from mixprec.doctor._recorder._matched import matched
from mixprec.doctor._recorder._modules import Modules
from mixprec.doctor._recorder._regions import Regions
from mixprec.doctor._recorder._scene import Scene
from mixprec.doctor._recorder._steps import Steps


@pytest.fixture
def attempts(monkeypatch):
    """`attempts(limit, patience, seconds)`: how many attempts are recorded, each of them `seconds` long."""

    def attempts(limit: int, patience: float, seconds: float) -> int:
        now = [0.0]
        monkeypatch.setattr(_steps.time, "monotonic", lambda: now[0])
        scene = Scene(SimpleNamespace(record=lambda record: None, rank=0))
        ended = []
        steps = Steps(scene, Modules(scene, Regions(scene, print), print), limit, lambda: ended.append(1), patience)
        weight = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for done in range(100):
            weight.grad = torch.ones(2)
            steps.backward({"value": 1.0}, None)
            steps.touch(optimizer)
            if ended:
                return done
            steps.before(optimizer)
            optimizer.step()
            steps.stepped(optimizer)
            steps.over(optimizer)
            now[0] += seconds
        return 100

    return attempts


@pytest.mark.parametrize(
    ("patience", "seconds", "expected"),
    [(0.0, 0.1, 10), (2.0, 0.1, 20), (2.0, 1.0, 10), (2.0, 0.001, 30)],
    ids=["no patience", "until it is over", "already over", "thrice the limit at most"],
)
def test_fast_attempts_go_on_while_patience_lasts(attempts, patience, seconds, expected):
    """Ten attempts are enough; where they took less than the patience there are more, up to thirty."""
    assert attempts(10, patience, seconds) == expected


def test_what_a_state_dict_fits_is_counted():
    """A prefix that one side has is told from a part that is not there."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    prefixed = {f"module.{name}": value for name, value in model.state_dict().items()}
    headless = {name: value for name, value in model.state_dict().items() if name.startswith("0.")}

    other = matched(model, prefixed, model.load_state_dict(prefixed, strict=False))
    partly = matched(model, headless, model.load_state_dict(headless, strict=False))

    assert {name: other[name] for name in ("given", "unexpected", "missing", "moved")} == {
        "given": 4,
        "unexpected": 4,
        "missing": 4,
        "moved": 4,
    }
    assert (other["first_missing"][0], other["first_unexpected"][0]) == ("0.weight", "module.0.weight")
    assert (partly["given"], partly["unexpected"], partly["missing"], partly["moved"]) == (2, 0, 2, 0)
