"""A listener hears each call of the script once, with what it was given, and torch is as before afterwards."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

import mixprec
from mixprec._taps import Listener, listen
from mixprec._trace import user_site


class Everything(Listener):
    """Notes the name of every event."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.arguments: list[tuple[Any, ...]] = []
        self.errors: list[tuple[str, Exception]] = []

    def failed(self, event: str, error: Exception) -> None:
        self.errors.append((event, error))


def _noting(name: str) -> Any:
    def note(self: Everything, *args: Any) -> None:
        self.events.append(name)
        self.arguments.append(args)

    return note


EVENTS = [name for name in vars(Listener) if not name.startswith("_") and name != "failed"]
for event in EVENTS:
    setattr(Everything, event, _noting(event))


def names(listener: Everything, *without: str) -> list[str]:
    return [name for name in listener.events if name not in without]


@pytest.mark.parametrize("kind", [torch.amp.GradScaler, torch.cpu.amp.GradScaler, mixprec.GradScaler])
@pytest.mark.filterwarnings("ignore:.*GradScaler.*deprecated:FutureWarning")
def test_a_training_step_is_heard_in_order(kind: type) -> None:
    """Each call of one step is told once, in order, for torch's scaler, a subclass, and ours."""
    listener = Everything()
    with listen(listener):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = StepLR(optimizer, 1)
        scaler = kind() if kind is torch.cpu.amp.GradScaler else kind("cpu")
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.ones(3, 2)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
    assert listener.errors == []
    assert names(listener) == [
        "optimizer_created",
        "scheduler_created",
        "scaler_created",
        "region_entered",
        "before_forward",
        "forward_done",
        "region_left",
        "before_scale",
        "scaled",
        "before_backward",
        "backward_done",
        "before_unscale",
        "unscaled",
        "before_clip",
        "clipped",
        "before_scaler_step",
        "before_step",
        "stepped",
        "scaler_stepped",
        "before_update",
        "updated",
        "scheduler_stepped",
        "gradients_cleared",
    ]


def test_an_unscale_of_the_step_itself_is_told_apart() -> None:
    """`by_step` is true where torch's `step` unscales, false where the script does."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    heard: list[bool] = []

    class Unscales(Listener):
        def unscaled(self, scaler: Any, optimizer: Any, by_step: bool) -> None:
            heard.append(by_step)

    with listen(Unscales()):
        for explicit in (True, False):
            scaler.scale(model(torch.ones(3, 2)).sum()).backward()
            if explicit:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert heard == [False, True]


def test_a_subclass_made_later_is_heard_once() -> None:
    """An override that calls its parent is one call, also in a class that did not exist when listening began."""
    listener = Everything()
    with listen(listener):

        class Own(torch.amp.GradScaler):
            def scale(self, outputs: Any) -> Any:
                return super().scale(outputs)

        Own("cpu").scale(torch.ones(()))
    assert names(listener, "before_scale") == ["scaler_created", "scaled"]


def test_everything_is_put_back() -> None:
    """After `remove` every tapped function is torch's own object again."""
    places = [
        (torch.autograd, "backward"),
        (torch.autograd, "grad"),
        (torch, "save"),
        (torch.nn.utils, "clip_grad_norm_"),
        (torch.amp.GradScaler, "step"),
        (torch.autocast, "__enter__"),
        (torch.optim.Optimizer, "__init__"),
        (nn.Module, "half"),
    ]
    before = [vars(owner)[name] for owner, name in places]
    listening = listen(Everything())
    assert all(vars(owner)[name] is not old for (owner, name), old in zip(places, before, strict=True))
    listening.remove()
    listening.remove()
    assert [vars(owner)[name] for owner, name in places] == before


def test_nobody_listening_taps_nothing() -> None:
    """A listener that overrides nothing leaves torch's functions alone."""
    before = (torch.autograd.backward, torch.amp.GradScaler.step, torch.autocast.__enter__)
    with listen(Listener()):
        assert (torch.autograd.backward, torch.amp.GradScaler.step, torch.autocast.__enter__) == before


def test_two_listeners_both_hear() -> None:
    """A second listener hears what the first does."""
    first, second = Everything(), Everything()
    with listen(first), listen(second):
        torch.ones((), requires_grad=True).backward()
    assert first.events == second.events == ["before_backward", "backward_done"]


def test_an_error_in_a_listener_does_not_reach_the_script() -> None:
    """`failed` is told, and the call returns what it would have returned."""
    errors: list[tuple[str, str]] = []

    class Broken(Listener):
        def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
            raise ValueError("broken")

        def failed(self, event: str, error: Exception) -> None:
            errors.append((event, str(error)))

    with listen(Broken()):
        assert torch.amp.GradScaler("cpu", init_scale=4.0).scale(torch.ones(())) == 4
    assert errors == [("scaled", "broken")]


def test_generators_of_parameters_reach_both_the_clip_and_the_listener() -> None:
    """A generator handed to the clip is not used up by the listener."""
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    listener = Everything()
    with listen(listener):
        nn.utils.clip_grad_norm_((p for p in model.parameters()), 1e-3)
        nn.utils.clip_grad_value_(iter(model.parameters()), clip_value=1e-4)
    assert listener.events == ["before_clip", "clipped"] * 2
    assert [len(arguments[0]) for arguments in listener.arguments] == [2] * 4
    assert [arguments[1] for arguments in listener.arguments] == [1e-3, 1e-3, 1e-4, 1e-4]
    assert all(float(p.grad.abs().max()) <= 1e-4 for p in model.parameters() if p.grad is not None)


def test_files_loaders_and_conversions_are_heard(tmp_path: Any) -> None:
    """Saving, loading, batches and dtype changes are told with what they were about."""
    listener = Everything()
    with listen(listener):
        torch.save({"a": 1}, tmp_path / "f.pt")
        torch.load(tmp_path / "f.pt")
        next(iter(torch.utils.data.DataLoader([torch.ones(1)] * 2)))
        nn.Linear(1, 1).half()
        nn.Linear(1, 1).to(torch.bfloat16)
        nn.Linear(1, 1).to("cpu")
        nn.Linear(1, 1).load_state_dict({"scale": torch.ones(1)}, strict=False)
    told = ["file_saved", "file_loaded", "batch_loaded", "converted", "converted", "weights_restored"]
    assert listener.events == told
    assert [arguments[1] for arguments in listener.arguments[-3:-1]] == [torch.float16, torch.bfloat16]
    _, state, result = listener.arguments[-1]
    assert (list(state), result.missing_keys, result.unexpected_keys) == (["scale"], ["weight", "bias"], ["scale"])


def test_a_site_is_the_users_line() -> None:
    """`user_site` passes over torch's frames: from inside a module hook it is the line that called the model."""
    sites = []

    class Sites(Listener):
        def forward_done(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
            sites.append(user_site(skip=1))  # this file is a user's too

    model = nn.Sequential(nn.Linear(1, 1))
    with listen(Sites()):
        here = user_site().line
        model(torch.ones(1, 1))
    assert {site.line for site in sites} == {(here or 0) + 1}
    assert sites[0].file == __file__


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_nothing_is_told_of_a_forward_that_is_traced() -> None:
    """What a listener computes must not end up in a traced graph."""
    listener = Everything()
    with listen(listener):
        torch.jit.trace(nn.Linear(2, 1), torch.ones(1, 2), check_trace=False)
        assert not {"before_forward", "forward_done"} & set(listener.events)
        nn.Linear(2, 1)(torch.ones(1, 2))
    assert {"before_forward", "forward_done"} <= set(listener.events)


def test_listeners_may_leave_in_the_order_in_which_they_came():
    """The first one hears nothing once it has left, the second still does, and then torch is as it was."""
    places = [(torch.amp.GradScaler, "scale"), (torch.autograd, "backward"), (torch.nn.utils, "clip_grad_norm_")]
    before = [vars(owner)[name] for owner, name in places]
    first, second = Everything(), Everything()
    one, two = listen(first), listen(second)

    one.remove()
    weight = torch.ones(2, requires_grad=True)
    torch.amp.GradScaler("cpu").scale(weight.sum()).backward()
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    two.remove()

    assert first.events == []
    assert {"scaled", "backward_done", "clipped"} <= set(second.events)
    assert [vars(owner)[name] for owner, name in places] == before


def test_a_listener_that_left_is_let_go_of():
    """Also where something else, such as torch.compile's lists, took hold of a function while it was tapped."""
    listener = Everything()
    gone = weakref.ref(listener)
    listening = listen(listener)
    held = torch.autograd.grad, torch.nn.utils.clip_grad_norm_
    listening.remove()
    del listener, listening

    assert gone() is None
    assert held[0] is not torch.autograd.grad
