"""An incident replays in the program's own process: bit for bit, and the op that failed is named."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mixprec._trace import source_line
from mixprec.errors import CheckpointError, InvalidValueError, UnknownNameError
from mixprec.monitor.incident import IncidentStore, IncidentWatch, load_incidents
from mixprec.monitor.replay import PRECISIONS, replay


class Net(nn.Module):
    def __init__(self, wide=8):
        super().__init__()
        self.a = nn.Linear(4, wide)
        self.norm = nn.BatchNorm1d(wide)
        self.drop = nn.Dropout(0.3)
        self.b = nn.Linear(wide, 2)

    def forward(self, x, gain):
        hidden = self.drop(self.norm(self.a(x)))
        loud = self.b(hidden) * gain
        return loud * loud.float().sigmoid()


def trained(folder, gains, scale=8.0, keep_batches=True):
    """Trains one step per gain; the scaler and the incidents."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    with IncidentWatch(IncidentStore(folder, keep_batches=keep_batches)):
        for gain in gains:
            optimizer.zero_grad()
            scaler.scale(loss_of(model, torch.randn(16, 4), gain)).backward()
            scaler.step(optimizer)
            scaler.update()
    return load_incidents(folder)


def loss_of(model, x, gain):
    with torch.autocast("cpu", torch.float16):
        out = model(x, gain)
    return F.mse_loss(out.float(), torch.zeros(16, 2))


def ready(wide=8):
    """A fresh model, optimizer and scaler, and the step as the loop takes it."""
    model = Net(wide)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu")

    def step(micro):
        loss = loss_of(model, *micro.args)
        scaler.scale(loss).backward()
        return loss

    return model, step, optimizer, scaler


def test_a_forward_overflow_replays_bit_for_bit_and_is_named(tmp_path):
    """Fresh weights are put in place; two runs and the record agree; the line and the module are the fault's."""
    [incident] = trained(tmp_path, [1.0, 1.0, 1e6])
    model, step, optimizer, scaler = ready()

    found = replay(incident, model, step, optimizer, scaler=scaler)

    assert found.repeats
    assert found.exact
    assert not found.healthy
    first = found.traced.origin.first
    assert (first.phase, source_line(first.location)) == ("forward", "loud = self.b(hidden) * gain")
    assert (first.location.module, first.module_class) == ("", "Net")
    assert found.avoiding_scale is None
    assert found.traced.records == ()


def test_a_gradient_overflow_names_the_scale_that_avoids_it(tmp_path):
    """A scale that is too large is found in backward, and the smaller one that is named was tried and is clean."""
    [incident] = trained(tmp_path, [1.0], scale=2.0**22)
    model, step, optimizer, scaler = ready()

    found = replay(incident, model, step, optimizer, scaler=scaler, deep=True)

    assert found.exact
    assert found.traced.origin.first.phase == "backward"
    assert 1 <= found.avoiding_scale < 2.0**22
    assert len(found.traced.records) == found.traced.ops > 20


def test_another_precision_tells_whether_precision_is_to_blame(tmp_path):
    """The step that overflows in float16 is clean in bfloat16 and in float32."""
    [incident] = trained(tmp_path, [3e4])
    model, step, optimizer, scaler = ready()

    healthy = {
        precision: replay(incident, model, step, optimizer, scaler=scaler, precision=precision).healthy
        for precision in PRECISIONS
    }

    assert healthy == {"fp32": True, "bf16-mixed": True, "fp16-mixed": False}


def test_a_step_that_draws_from_elsewhere_does_not_repeat(tmp_path):
    """Chance that no seed governs is told: the two runs differ."""
    [incident] = trained(tmp_path, [1e6])
    model, _, _, _ = ready()
    runs = []

    def step(micro):
        runs.append(1)
        loss = loss_of(model, micro.args[0], 1.0) * len(runs)
        loss.backward()
        return loss

    found = replay(incident, model, step)

    assert not found.repeats
    assert not found.exact


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    """Another model, an unknown precision and an incident without batches raise; the right ones do not."""
    [incident] = trained(tmp_path / "a", [1e6])
    model, step, optimizer, scaler = ready(wide=4)
    with pytest.raises(CheckpointError, match=r"was saved with shape \(8,\) and has shape \(4,\) in this Net"):
        replay(incident, model, step, optimizer, scaler=scaler)

    model, step, optimizer, scaler = ready()
    with pytest.raises(UnknownNameError, match="fp16-mixed"):
        replay(incident, model, step, optimizer, scaler=scaler, precision="fp16")

    [without] = trained(tmp_path / "b", [1e6], keep_batches=False)
    with pytest.raises(InvalidValueError, match="keep_batches=False"):
        replay(without, model, step, optimizer, scaler=scaler)
    assert replay(incident.folder, model, step, optimizer, scaler=scaler).exact
