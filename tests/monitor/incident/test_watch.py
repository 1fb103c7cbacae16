"""A failing step is saved as it was, and a healthy one leaves nothing."""

from __future__ import annotations

import contextlib
import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mixprec import GradScaler
from mixprec.monitor import Monitor
from mixprec.monitor.incident import IncidentStore, IncidentWatch, load_incidents


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.b = nn.Linear(8, 2)
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x, *, gain=None):
        out = self.b(self.drop(self.norm(self.a(x))))
        return {"out": out if gain is None else out * gain}


def watched(folder, **options):
    return IncidentWatch(IncidentStore(folder), **options)


def setup(scaler=None, lr=0.01):
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=lr), scaler


def batch():
    return torch.randn(8, 4)


def take(model, optimizer, scaler, batches, gain=None):
    optimizer.zero_grad()
    for x in batches:
        with torch.autocast("cpu", torch.float16, enabled=scaler is not None):
            loss = model(x, gain=gain)["out"].float().pow(2).mean()
        (loss if scaler is None else scaler.scale(loss)).backward()
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return loss


SCALERS = {
    "torch": lambda: torch.amp.GradScaler("cpu", init_scale=8.0),
    "mixprec": lambda: GradScaler("cpu", init_scale=8.0),
    "none": lambda: None,
}


@pytest.mark.parametrize("kind", SCALERS)
def test_a_healthy_run_saves_nothing(tmp_path, kind):
    """Twenty good steps leave no incident, with a scaler or without."""
    model, optimizer, scaler = setup(SCALERS[kind]())
    with watched(tmp_path) as watch:
        for _ in range(20):
            take(model, optimizer, scaler, [batch()])

    assert load_incidents(tmp_path) == []
    assert watch.step == 20


@pytest.mark.parametrize("kind", SCALERS)
def test_a_bad_step_is_saved_as_it_was(tmp_path, kind):
    """Weights, buffers before the forward, all micro-batches with kwargs, optimizer, scaler, random states, region."""
    model, optimizer, scaler = setup(SCALERS[kind]())
    with watched(tmp_path):
        for _ in range(3):
            take(model, optimizer, scaler, [batch()])
        state = copy.deepcopy(model.state_dict())
        moments = copy.deepcopy(optimizer.state_dict())
        scaling = None if scaler is None else scaler.state_dict()
        first, second = batch(), batch()
        gain = torch.tensor(float("inf"))
        take(model, optimizer, scaler, [first, second], gain=gain)

    [incident] = load_incidents(tmp_path)
    weights = incident.weights(0)

    assert (incident.kind, incident.step) == ("loss" if scaler is None else "skipped", 3)
    assert weights.keys() == state.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in state.items())
    assert [list(map(str, call[2])) for call in incident.calls()] == [["gain"], ["gain"]]
    assert [torch.equal(call[1][0], x) for call, x in zip(incident.calls(), (first, second), strict=True)] == [True] * 2
    assert incident.optimizers()[0]["param_groups"] == moments["param_groups"]
    assert all(
        torch.equal(incident.optimizers()[0]["state"][n]["exp_avg"], moments["state"][n]["exp_avg"])
        for n in moments["state"]
    )
    assert incident.scaler() == scaling
    assert (incident.facts["region"] or {}).get("dtype") == (None if scaler is None else "float16") or scaler is None
    assert len(incident.losses) == 2
    assert incident.facts["roots"][0]["class"] == "Net"


def test_failures_in_a_row_are_not_saved_each(tmp_path):
    """Of nine skipped steps the 1st, 2nd, 4th and 8th are on disk."""
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path) as watch:
        for _ in range(9):
            take(model, optimizer, scaler, [batch()], gain=torch.tensor(float("inf")))

    assert [incident.step for incident in load_incidents(tmp_path)] == [0, 1, 3, 7]
    assert watch.counts["skipped"] == 9


def test_a_step_left_out_by_hand_is_saved_when_the_script_tested_its_loss(tmp_path):
    """`if not isfinite(loss): continue` leaves an incident; a call without a test leaves none."""
    model, optimizer, _ = setup()
    with watched(tmp_path, hear_checks=True):
        for gain in (1.0, float("inf"), 1.0, 1.0):
            loss = F.mse_loss(model(batch(), gain=gain)["out"], torch.zeros(8, 2))
            if not torch.isfinite(loss):
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model(batch(), gain=float("inf"))
        take(model, optimizer, None, [batch()])

    [incident] = load_incidents(tmp_path)
    assert (incident.kind, incident.step, incident.losses) == ("loss", 1, (float("inf"),))


def test_a_hand_written_scaler_that_skips_is_saved(tmp_path):
    """A loop that calls backward, finds Inf by its own means and does not step leaves an incident at the next call."""
    model, optimizer, _ = setup()
    with watched(tmp_path):
        for gain in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            (model(batch(), gain=gain)["out"].mean() * 128).backward()
            if all(p.grad.isfinite().all() for p in model.parameters()):
                optimizer.step()

    assert [(one.kind, one.step) for one in load_incidents(tmp_path)] == [("loss", 1)]


def test_loaded_batches_are_kept_with_the_step(tmp_path):
    """What the DataLoader handed out for the step is in the incident, targets included."""
    data = TensorDataset(torch.randn(16, 4), torch.arange(16))
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path):
        for step, (x, _) in enumerate(DataLoader(data, batch_size=8)):
            take(model, optimizer, scaler, [x], gain=torch.tensor(float("inf" if step else 1)))

    [incident] = load_incidents(tmp_path)
    [(x, y)] = incident.loaded()
    assert torch.equal(y, torch.arange(8, 16))
    assert torch.equal(x, incident.calls()[0][1][0])


def test_evaluation_between_steps_is_no_part_of_them(tmp_path):
    """Calls without gradients are not among the micro-batches."""
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path):
        for step in range(2):
            with torch.no_grad():
                model(batch())
            take(model, optimizer, scaler, [batch()], gain=torch.tensor(float("inf" if step else 1)))

    [incident] = load_incidents(tmp_path)
    assert len(incident.calls()) == 1


def test_watching_changes_nothing(tmp_path):
    """Weights after ten steps, two of them skipped, are bit for bit those of the run without a watch."""

    def run(around):
        model, optimizer, scaler = setup(SCALERS["torch"]())
        with around:
            for step in range(10):
                take(model, optimizer, scaler, [batch()], gain=torch.tensor(float("inf" if step in (3, 4) else 1)))
        return model.state_dict()

    bare, seen = run(contextlib.nullcontext()), run(watched(tmp_path))

    assert all(torch.equal(a, b) for a, b in zip(bare.values(), seen.values(), strict=True))
    assert len(load_incidents(tmp_path)) == 2


def test_checks_are_put_back(tmp_path):
    """`isfinite` and its kin are torch's own again after the watch."""
    import math

    before = (torch.isfinite, math.isnan, torch.Tensor.isinf)
    with watched(tmp_path, hear_checks=True):
        assert (torch.isfinite, math.isnan, torch.Tensor.isinf) != before
    assert (torch.isfinite, math.isnan, torch.Tensor.isinf) == before


def test_a_loop_that_nothing_ends_does_not_pile_up_batches(tmp_path):
    """References to batches are bounded where no optimizer ever steps."""
    model, _, _ = setup()
    with watched(tmp_path) as watch:
        for _ in range(200):
            model(batch())["out"].mean().backward()
        assert len(watch.moment.calls) <= 64


def test_data_that_no_loader_hands_out_can_be_kept(tmp_path):
    """What `keep` was given is with the step that it was given for."""
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path) as watch:
        for step in range(2):
            watch.keep({"step": step})
            take(model, optimizer, scaler, [batch()], gain=torch.tensor(float("inf" if step else 1)))

    [incident] = load_incidents(tmp_path)
    assert incident.loaded() == [{"step": 1}]


def test_a_step_that_is_asked_for_is_saved_though_healthy(tmp_path):
    """`steps` names steps to keep; of four healthy ones the third is on disk."""
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path, steps=[2]):
        for _ in range(4):
            take(model, optimizer, scaler, [batch()])

    [incident] = load_incidents(tmp_path)
    assert (incident.kind, incident.step, len(incident.losses)) == ("asked", 2, 1)


@pytest.mark.parametrize("how", ["function", "method"])
def test_compiled_models_are_heard_once_per_call(tmp_path, how):
    """`torch.compile(model)` and `model.compile()` in the block: every step counts, with one call each."""
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path):
        compiled = torch.compile(model, backend="eager") if how == "function" else model
        if how == "method":
            model.compile(backend="eager")
        for step in range(3):
            take(compiled, optimizer, scaler, [batch()], gain=torch.tensor(float("inf" if step == 2 else 1)))

    [incident] = load_incidents(tmp_path)
    assert incident.step == 2
    assert len(incident.calls()) == 1
    assert "gain" in incident.calls()[0][2]


def test_trouble_in_watching_is_reported_once_and_training_goes_on(tmp_path, monkeypatch):
    """A watch whose own code raises says so once per event, and the run is what it would have been."""
    said = []
    model, optimizer, scaler = setup(SCALERS["torch"]())

    def broken(self, kind):
        raise ZeroDivisionError("in the watch")

    monkeypatch.setattr(IncidentWatch, "judged", broken)
    with IncidentWatch(IncidentStore(tmp_path, report=said.append)):
        for _ in range(3):
            take(model, optimizer, scaler, [batch()])

    assert said == ["Incidents may be incomplete: before_update failed with ZeroDivisionError: in the watch"]
    assert scaler.state_dict()["_growth_tracker"] == 3


FUSED = {"torch": SCALERS["torch"], "mixprec": SCALERS["mixprec"]}


def fused(scaler):
    """A model whose optimizer decides on its device whether it steps."""
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True), scaler


@pytest.mark.parametrize("kind", FUSED)
def test_what_a_device_decides_is_judged_a_step_late(tmp_path, kind, monkeypatch):
    """A fused optimizer's skip is found before the next step is taken: weights, state and scale are the step's own."""
    monkeypatch.setattr("mixprec.monitor.incident._window.far", lambda tensors: True)
    model, optimizer, scaler = fused(FUSED[kind]())
    with watched(tmp_path) as watch:
        for _ in range(3):
            take(model, optimizer, scaler, [batch()])
        weights = copy.deepcopy(model.state_dict())
        moments = copy.deepcopy(optimizer.state_dict())
        scaling = scaler.state_dict()
        bad = batch()
        take(model, optimizer, scaler, [bad], gain=torch.tensor(float("inf")))
        assert load_incidents(tmp_path) == []
        assert watch.step == 4
        take(model, optimizer, scaler, [batch()])

    [incident] = load_incidents(tmp_path)
    saved = incident.weights(0)
    assert (incident.kind, incident.step, incident.facts["late"], incident.scale) == ("skipped", 3, True, 8.0)
    assert all(torch.equal(saved[name], tensor) for name, tensor in weights.items())
    assert torch.equal(incident.optimizers()[0]["state"][0]["exp_avg"], moments["state"][0]["exp_avg"])
    assert torch.equal(incident.optimizers()[0]["state"][0]["step"], moments["state"][0]["step"])
    assert incident.scaler()["scale"] == scaling["scale"]
    assert incident.scaler()["_growth_tracker"] == scaling["_growth_tracker"]
    assert torch.equal(incident.calls()[0][1][0], bad)
    assert incident.facts["roots"][0]["gradients"] == {}
    assert math.isinf(incident.losses[0])


def test_the_last_step_is_judged_when_the_run_ends(tmp_path, monkeypatch):
    """A device's skip in the last step is not lost, and a healthy run that is judged late leaves nothing."""
    monkeypatch.setattr("mixprec.monitor.incident._window.far", lambda tensors: True)
    model, optimizer, scaler = fused(SCALERS["torch"]())
    with watched(tmp_path / "sound"):
        for _ in range(5):
            take(model, optimizer, scaler, [batch()])
    with watched(tmp_path / "bad"):
        take(model, optimizer, scaler, [batch()])
        take(model, optimizer, scaler, [batch()], gain=torch.tensor(float("inf")))

    assert load_incidents(tmp_path / "sound") == []
    assert [one.step for one in load_incidents(tmp_path / "bad")] == [1]


def test_the_host_reads_no_flag_where_it_let_every_optimizer_step(tmp_path, monkeypatch):
    """An optimizer that the scaler steps on the host's word needs no look at the scaler's flags."""
    read = []
    monkeypatch.setattr("mixprec.monitor.incident._window._flags", lambda scaler: read.append(scaler) or ())
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path):
        take(model, optimizer, scaler, [batch()])
        assert read == []
        take(model, optimizer, scaler, [batch()], gain=torch.tensor(float("inf")))
        assert len(read) == 1


def test_a_loss_on_a_device_is_read_when_its_copy_has_landed(tmp_path, monkeypatch):
    """Without a scaler the flag that left before backward decides, before the optimizer has spoiled the weights."""
    monkeypatch.setattr("mixprec.monitor.incident._window.far", lambda tensors: True)
    model, optimizer, _ = setup()
    with watched(tmp_path):
        take(model, optimizer, None, [batch(), batch()])
        weights = copy.deepcopy(model.state_dict())
        take(model, optimizer, None, [batch(), batch()], gain=torch.tensor(float("inf")))

    [incident] = load_incidents(tmp_path)
    assert (incident.kind, incident.step, incident.facts["late"]) == ("loss", 1, False)
    assert all(torch.equal(incident.weights(0)[name], tensor) for name, tensor in weights.items())


@pytest.mark.parametrize("kind", SCALERS)
def test_a_step_that_is_kept_though_it_is_healthy_is_saved_as_it_began(tmp_path, kind):
    """Weights (tied ones once) and optimizer state are those before the optimizer changed them."""
    model, optimizer, scaler = setup(SCALERS[kind]())
    model.tied = model.b
    with watched(tmp_path) as watch:
        take(model, optimizer, scaler, [batch()])
        weights, moments = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        watch.ask("underflow")
        take(model, optimizer, scaler, [batch(), batch()])
        take(model, optimizer, scaler, [batch()])

    [incident] = load_incidents(tmp_path)
    saved = incident.weights(0)
    assert (incident.kind, incident.step, len(incident.losses)) == ("underflow", 1, 2)
    assert incident.scale == (None if scaler is None else 8.0)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in saved.items())
    assert incident.facts["roots"][0]["alias"] == {"tied.weight": "b.weight", "tied.bias": "b.bias"}
    assert torch.equal(incident.optimizers()[0]["state"][0]["exp_avg"], moments["state"][0]["exp_avg"])


def test_a_step_that_fails_in_the_place_of_the_one_asked_for_is_saved_as_a_failure(tmp_path):
    """What was asked for is kept at the next step that does not fail."""
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path) as watch:
        watch.ask("underflow")
        take(model, optimizer, scaler, [batch()], gain=torch.tensor(float("inf")))
        take(model, optimizer, scaler, [batch()])
        take(model, optimizer, scaler, [batch()])

    assert [(one.kind, one.step) for one in load_incidents(tmp_path)] == [("skipped", 0), ("underflow", 1)]


@pytest.mark.parametrize("optimizer", ["plain", "fused"])
@pytest.mark.parametrize("near", [True, False])
def test_a_bad_loss_whose_gradients_are_finite_is_saved_before_it_is_applied(tmp_path, monkeypatch, optimizer, near):
    """A scaler looks at gradients alone and takes the step; weights are those before it, beside a skip that is one."""
    monkeypatch.setattr("mixprec.monitor.incident._window.far", lambda tensors: not near)
    model, adam, scaler = (fused if optimizer == "fused" else setup)(SCALERS["torch"]())
    with watched(tmp_path):
        for extra in (0.0, float("inf"), 0.0):
            if extra:
                weights = copy.deepcopy(dict(model.named_parameters()))
            loss = model(batch())["out"].float().pow(2).mean() + extra
            adam.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(adam)
            scaler.update()
        take(model, adam, scaler, [batch()], gain=torch.tensor(float("inf")))

    assert [(one.kind, one.step) for one in load_incidents(tmp_path)] == [("loss", 1), ("skipped", 3)]
    saved = load_incidents(tmp_path)[0].weights(0)
    assert all(torch.equal(saved[name], parameter) for name, parameter in weights.items())


def test_a_number_that_a_monitor_tests_is_no_test_of_the_scripts(tmp_path):
    """A monitor beside the watch looks at losses that are not finite: only the skipped step is kept."""
    model, optimizer, scaler = setup(SCALERS["torch"]())
    with watched(tmp_path, hear_checks=True), Monitor(model, optimizer, level="deep") as monitor:
        for gain in (1.0, float("inf"), 1.0, 1.0):
            monitor.flush()  # records and judges the step before, when this one has begun
            loss = sum(model(batch(), gain=gain)["out"].float().pow(2).mean() for _ in range(2))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    assert [(one.kind, one.step) for one in load_incidents(tmp_path)] == [("skipped", 1)]
