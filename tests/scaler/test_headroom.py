"""A scaler under headroom rules moves as the specification does on the same gradients, wherever they are read."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

from mixprec import GradScaler, Precision, presets
from mixprec._gradients import WaitlessReader
from mixprec._headroom import HeadroomRules, HeadroomState, advance_headroom, initial_headroom
from mixprec._kernels import _means
from mixprec._loss_scale import Event
from mixprec._scaler import _held, _reports
from mixprec.errors import InvalidValueError, LossScaleFloorError

RULES = HeadroomRules(init_scale=2.0**12, growth_interval=4)
OPTIMIZERS = {
    "fused": lambda params: torch.optim.AdamW(params, lr=0.02, fused=True),
    "plain": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
}
Magnitudes = list[tuple[bool, float]]


def spec(rules: HeadroomRules, magnitudes: Magnitudes) -> list[tuple[HeadroomState, Event]]:
    """What the specification makes of them."""
    state, seen = initial_headroom(rules), []
    for found_inf, amax in magnitudes:
        state, event = advance_headroom(rules, state, found_inf, amax)
        seen.append((state, event))
    return seen


def held(scaler: GradScaler) -> HeadroomState:
    """The state that `scaler` holds."""
    return HeadroomState(scaler._state(), *scaler._course.numbers())


def magnitude_of(params: Sequence[nn.Parameter]) -> tuple[bool, float]:
    """Whether any scaled gradient is not finite, and their largest magnitude, looked at one by one."""
    values = [abs(x) for p in params if p.grad is not None for x in p.grad.double().flatten().tolist()]
    return not all(map(math.isfinite, values)), max(values)


def float16_gradients(params: Sequence[nn.Parameter]) -> None:
    """Rounds the gradients as a float16 backward pass would: large ones become infinite."""
    for param in params:
        param.grad = param.grad.half().float()


class Training:
    """A small network that learns; its gradients shrink and, in some steps, a bad batch makes them large."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        self.params = list(self.model.parameters())
        self.optimizer = OPTIMIZERS[kind](self.params)
        self.target = nn.Linear(8, 4)

    def batches(self, steps: int) -> Iterator[torch.Tensor]:
        """The loss of each step; every ninth batch is 16 times as large, every twentieth 400 times."""
        for step in range(steps):
            batch = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
            factor = 400.0 if step % 20 == 13 else 16.0 if step % 9 == 5 else 1.0
            with torch.no_grad():
                wanted = self.target(batch)
            self.optimizer.zero_grad()
            yield (self.model(batch) - wanted).square().mean() * factor


def train(kind: str, max_norm: float | None, unscale: bool, rules: HeadroomRules = RULES) -> tuple[Magnitudes, Any]:
    """The magnitudes of a training and what its scaler held after each step."""
    training, scaler = Training(kind), GradScaler("cpu", rules=rules)
    magnitudes, seen = [], []
    for loss in training.batches(80):
        scaler.scale(loss).backward()
        float16_gradients(training.params)
        magnitudes.append(magnitude_of(training.params))
        if unscale:
            scaler.unscale_(training.optimizer)
        scaler.step(training.optimizer, max_norm=max_norm)
        scaler.update()
        seen.append(held(scaler))
    return magnitudes, seen


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("unscale", [False, True])
def test_a_training_moves_the_scale_as_the_specification_does(kind: str, max_norm: float | None, unscale: bool) -> None:
    """Scale, counters and peak after each of 80 steps, in which everything happens that can happen."""
    magnitudes, seen = train(kind, max_norm, unscale)
    expected = spec(RULES, magnitudes)
    assert seen == [state for state, _ in expected]
    assert {event for _, event in expected} == {Event.HOLD, Event.GROW, Event.BACK_OFF, Event.LOWER}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("unscale", [False, True])
def test_handled_as_an_accelerator_it_moves_alike(kind: str, unscale: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader that never waits and the tensors' form of the rules lead to the same states."""
    monkeypatch.setattr(_means, "reader_for", lambda devices, *, below_one: WaitlessReader(below_one))
    monkeypatch.setattr(_reports, "on_host", lambda tensor: False)
    monkeypatch.setattr(_held, "on_host", lambda tensor: False)
    magnitudes, seen = train(kind, 0.5, unscale)
    assert seen == [state for state, _ in spec(RULES, magnitudes)]


def test_lowering_ahead_of_an_overflow_is_seen_in_the_report() -> None:
    """The step was applied, and the scale is lower after it: that is the event LOWER."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, scaler = OPTIMIZERS["fused"]([weight]), GradScaler("cpu", rules=HeadroomRules())
    scaler.scale(weight.sum() * 0.5).backward()
    scaler.step(optimizer)
    scaler.update()
    report = scaler.report(optimizer)
    assert report.applied
    assert (report.scale_before, report.scale_after) == (2.0**16, 2.0**13)


@pytest.mark.parametrize("together", [False, True])
def test_the_largest_gradient_of_all_optimizers_counts(together: bool) -> None:
    """One of three is unscaled beforehand, one is crowded, one has next to nothing."""
    params = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    optimizers = [OPTIMIZERS[kind]([param]) for kind, param in zip(("fused", "plain", "fused"), params, strict=True)]
    scaler = GradScaler("cpu", rules=HeadroomRules())
    for crowded in range(3):
        factors = [2.0**-20] * 3
        factors[crowded] = 10000.0 / scaler.get_scale() if crowded == 0 else 20000.0 / scaler._state().scale
        for param in params:
            param.grad = None
        scaler.scale(sum((p.sum() * f for p, f in zip(params, factors, strict=True)), torch.zeros(()))).backward()
        scaler.unscale_(optimizers[1])
        before = scaler.get_scale()
        if together:
            scaler.step_together(optimizers)
        else:
            for optimizer in optimizers:
                scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == before / (2.0 if crowded == 0 else 4.0)


def test_without_a_known_magnitude_the_scale_stays() -> None:
    """A verdict that code written for torch has put there says nothing of the gradients' size."""
    optimizer = OPTIMIZERS["plain"]([nn.Parameter(torch.ones(1))])
    scaler = GradScaler("cpu", rules=HeadroomRules(growth_interval=1))
    scaler.scale(torch.zeros(()))
    for found_inf, expected in ((0.0, 2.0**16), (1.0, 2.0**15), (0.0, 2.0**15)):
        scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {"cpu": torch.tensor(found_inf)}
        scaler.update()
        assert scaler.get_scale() == expected


def test_a_scale_set_by_hand_takes_the_peak_with_it() -> None:
    """A peak of half the limit at twice the scale would have been the limit: it vetoes growth."""
    for new_scale, grown in ((2.0**17, False), (2.0**16, True)):
        weight = nn.Parameter(torch.ones(1))
        optimizer, scaler = OPTIMIZERS["fused"]([weight]), GradScaler("cpu", rules=HeadroomRules(growth_interval=2))
        for scaled_gradient in (3000.0, 1.0):
            optimizer.zero_grad()
            scaler.scale(weight.sum() * (scaled_gradient / 2.0**16)).backward()
            scaler.step(optimizer)
            scaler.update()
            if scaled_gradient == 3000.0:
                scaler.update(torch.tensor(new_scale) if grown else new_scale)
        assert scaler.get_scale() == (2.0 * new_scale if grown else new_scale)


def test_the_floor_raises_as_under_classic_rules() -> None:
    """At the patience, and not before."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = OPTIMIZERS["fused"]([weight])
    scaler = GradScaler("cpu", rules=HeadroomRules(init_scale=1.0, floor_patience=2))
    for step in range(2):
        optimizer.zero_grad()
        scaler.scale(weight.sum() * math.inf).backward()
        scaler.step(optimizer)
        if step == 0:
            scaler.update()
        else:
            with pytest.raises(LossScaleFloorError, match=r"^2 consecutive steps"):
                scaler.update()


# Settings, saving, loading -------------------------------------------------------------------------------------------


def test_settings_are_headroom_s() -> None:
    """What is no whole bit is refused, beside what is accepted, also through torch's private names; nothing changes."""
    scaler = GradScaler("cpu", rules=HeadroomRules())
    scaler.scale(torch.zeros(()))
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (2.0, 0.5, 50)
    with pytest.raises(InvalidValueError, match=r"^growth_factor is 3\.0; accepted is 2\.0 under HeadroomRules"):
        scaler.set_growth_factor(3.0)
    scaler.set_growth_factor(2.0)
    with pytest.raises(InvalidValueError, match=r"^backoff_factor is 0.3; accepted is a power of 2"):
        scaler.set_backoff_factor(0.3)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (2.0, 0.25, 7)
    scaler._growth_interval = 9
    assert scaler._course._headroom == HeadroomRules(backoff_factor=0.25, growth_interval=7)
    assert scaler._current_rules().growth_interval == 9
    with pytest.raises(InvalidValueError, match=r"^init_scale is 8.0; accepted is its default where rules are given"):
        GradScaler("cpu", 8.0, rules=HeadroomRules())


def run(scaler: GradScaler, magnitudes: Magnitudes) -> list[HeadroomState]:
    """What `scaler` holds after steps with gradients that reach these magnitudes."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS["plain"]([weight])
    seen = []
    scaler.scale(torch.zeros(()))
    for found_inf, amax in magnitudes:
        weight.grad = torch.tensor([0.0, -amax, math.inf if found_inf else 0.0])
        scaler.step(optimizer)
        scaler.update()
        seen.append(held(scaler))
    return seen


STREAM: Magnitudes = [(False, 900.0), (True, 1.0), (False, 9000.0), (False, 4095.0), (False, 60000.0), (False, 3.0)] * 3


@pytest.mark.parametrize("way", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize("when", range(1, 7))
def test_saved_anywhere_it_goes_on_exactly(way: str, when: int) -> None:
    """Also in the middle of a growth interval, whose largest magnitude is part of what is saved."""
    rules = replace(RULES, growth_interval=3)
    whole = run(GradScaler("cpu", rules=rules, guards=()), STREAM)
    first = GradScaler("cpu", rules=rules, guards=())
    run(first, STREAM[:when])
    if way == "state_dict":
        second = GradScaler("cpu", rules=HeadroomRules(), guards=())
        second.load_state_dict(first.state_dict())
        assert second.get_growth_interval() == 3
    else:
        second = pickle.loads(pickle.dumps(first)) if way == "pickle" else copy.deepcopy(first)
    assert run(second, STREAM[when:]) == whole[when:]


def test_states_go_from_and_to_torch_and_classic_rules() -> None:
    """The scale goes along; each keeps to its own settings or, torch's way, takes the saved ones."""
    ours = GradScaler("cpu", rules=RULES)
    run(ours, STREAM[:4])
    saved = ours.state_dict()
    assert list(saved) == ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker", "mixprec"]
    assert saved["mixprec"] == {"version": 1, "allowance": 0, "floor_overflows": 0, "peak": 4095.0}
    for other in (torch.amp.GradScaler("cpu"), GradScaler("cpu"), GradScaler("cpu", rules=presets.MEGATRON.rules)):
        other.load_state_dict(saved)
        assert (other.get_scale(), other.get_growth_interval()) == (saved["scale"], 4)
        other.scale(torch.zeros(()))
        theirs = other.state_dict()
        back = GradScaler("cpu", rules=HeadroomRules())
        back.load_state_dict({**theirs, "growth_factor": 3.0, "backoff_factor": 0.3, "_growth_tracker": 1})
        assert held(back) == HeadroomState(replace(held(ours).base, clean_steps=0))
        assert (back.get_growth_factor(), back.get_backoff_factor(), back.get_growth_interval()) == (2.0, 0.5, 50)


def test_a_saved_state_that_cannot_be_changes_nothing() -> None:
    """The error names the entry."""
    scaler = GradScaler("cpu", rules=RULES)
    run(scaler, STREAM[:4])
    saved, before = scaler.state_dict(), held(scaler)
    for peak in (-1.0, math.inf, math.nan, "many", True):
        with pytest.raises(InvalidValueError, match=r"^peak is .*; accepted is a finite number, 0 or more"):
            scaler.load_state_dict({**saved, "mixprec": {**saved["mixprec"], "peak": peak}})
    with pytest.raises(InvalidValueError, match=r"^backoff_factor"):
        scaler.load_state_dict({**saved, "backoff_factor": 0.3, "scale": 8.0})
    assert held(scaler) == before


def test_precision_trains_with_it() -> None:
    """A scaler of one's own: two micro-batches a window, masters, and a state that resumes."""
    for mode in ("fp16-mixed", "fp16-master"):

        def made(mode: str = mode) -> Precision:
            torch.manual_seed(0)
            model = nn.Linear(4, 2)
            optimizer = OPTIMIZERS["fused"](list(model.parameters()))
            scaler = GradScaler("cpu", rules=HeadroomRules())
            return Precision(mode, optimizer, model=model, accumulate=2, max_norm=1.0, scaler=scaler)

        precision, outcomes = made(), []
        for _ in range(6):
            with precision.autocast():
                loss = precision.model(torch.ones(2, 4)).float().square().mean() * 0.25
            precision.backward(loss)
            report = precision.step()
            outcomes.append((report.applied, precision.scaler.get_scale()))
        assert outcomes[1][0]
        assert outcomes[1][1] < 2.0**16
        resumed = made()
        resumed.load_state_dict(precision.state_dict())
        assert held(resumed.scaler) == held(precision.scaler)


# Compiled, and on devices --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_compiled_phase_moves_alike() -> None:
    """torch.compile imports torch's own deprecated modules while it traces."""
    training, scaler = Training("fused"), GradScaler("cpu", rules=RULES)

    def phase() -> None:
        scaler.step(training.optimizer, max_norm=0.5)
        scaler.update()

    torch._dynamo.reset()
    compiled = torch.compile(phase, backend="aot_eager")
    magnitudes, seen = [], []
    for loss in training.batches(16):
        scaler.scale(loss).backward()
        float16_gradients(training.params)
        magnitudes.append(magnitude_of(training.params))
        compiled()
        seen.append(held(scaler))
    assert seen == [state for state, _ in spec(RULES, magnitudes)]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_it_moves_alike_and_nothing_synchronises() -> None:
    """Under the sync debug mode that raises; the states are read between steps."""
    training, scaler = Training("fused"), GradScaler("cuda", rules=RULES)
    params = [nn.Parameter(param.detach().cuda()) for param in training.params]
    optimizer = OPTIMIZERS["fused"](params)
    magnitudes, seen = [], []
    for step, loss in enumerate(training.batches(40)):
        (loss * scaler.scale(torch.ones((), device="cuda")).item()).backward()
        float16_gradients(training.params)
        for param, source in zip(params, training.params, strict=True):
            param.grad = source.grad.cuda()
        magnitudes.append(magnitude_of(params))
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        try:
            scaler.step(optimizer, max_norm=0.5)
            scaler.update()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        seen.append(held(scaler))
    assert seen == [state for state, _ in spec(RULES, magnitudes)]
