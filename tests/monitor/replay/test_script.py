"""A script's failed step runs again, alone and bit for bit, and the command line shows the op that failed."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from mixprec._script import Command, run_script
from mixprec._trace import source_line
from mixprec.cli import main
from mixprec.monitor.incident import load_incidents
from mixprec.monitor.replay import NotReachedError, replay_script

pytestmark = pytest.mark.slow

INLINE = """
    import torch, torch.nn.functional as F
    from torch import nn

    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

        def forward(self, x, gain=1.0):
            hidden = self.norm(self.a(x))
            return self.b(hidden) * gain

    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(8):
        x, y = torch.randn(8, 4), torch.randn(8, 2)
        with torch.autocast("cpu", torch.float16):
            loss = F.mse_loss(model(x, gain=1e7 if step == 5 else 1.0), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

LOADED = """
    import torch, torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 2))
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(DataLoader(data, batch_size=8, shuffle=True)):
        out = model(x)
        loss = F.mse_loss(out, y) if step < 4 else torch.log(out - out).mean()
        if not torch.isfinite(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

COUNTED = """
    import torch, torch.nn.functional as F
    from torch import nn

    torch.manual_seed(0)
    xs, ys = torch.randn(8, 8, 4), torch.randn(8, 8, 2)
    model = nn.Linear(4, 2).half()
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-8)
    for step in range(3):
        loss = F.mse_loss(model(xs[step].half()).float(), ys[step]) * (1e-4 if step == 0 else 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


RANKS = """
    import os, sys
    import torch, torch.distributed as dist, torch.multiprocessing as mp, torch.nn.functional as F
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            hidden = self.a(x)
            return self.b(hidden * hidden)

    def work(rank, file):
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
        torch.manual_seed(rank)
        model = DDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        for step in range(4):
            x, y = torch.randn(8, 4), torch.randn(8, 2)
            if step == 2 and rank == 1:
                x = x * 1000
            with torch.autocast("cpu", torch.float16):
                loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        dist.destroy_process_group()

    if __name__ == "__main__":
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, args=(os.path.join(folder, "store"),), nprocs=2)
"""


def saved(folder, text):
    """The incidents that the script left behind."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text), encoding="utf-8")
    outcome = run_script(
        Command((str(script),)),
        entry="mixprec.monitor.incident:attach",
        options={"folder": str(folder / "incidents")},
        cwd=folder,
        timeout=120,
    )
    assert outcome.errors == ()
    assert outcome.returncode == 0, outcome.output
    return load_incidents(folder / "incidents")


def test_a_skipped_step_of_a_script_replays(tmp_path):
    """The sixth step, its data drawn in the loop: reached by a jump, bit for bit, its line named; bf16 is clean."""
    [incident] = saved(tmp_path, INLINE)
    assert (incident.kind, incident.step) == ("skipped", 5)

    shown = CliRunner().invoke(main, ["replay", str(incident.folder)])
    assert shown.exit_code == 1, shown.output
    assert "Replayed twice, both bit for bit as recorded." in shown.output
    assert "return self.b(hidden) * gain" in shown.output
    assert "running all" not in shown.output

    other = CliRunner().invoke(
        main, ["replay", str(incident.folder), "--precision", "bf16-mixed", "--deep", "--format", "json"]
    )
    document = json.loads(other.output)["replay"]
    assert document["precision"] == "bf16-mixed"
    assert document["traced"]["origin"]["first"] is None
    assert len(document["traced"]["records"]) == document["traced"]["ops"]
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
    shown = json.loads(page.partition("## `mixprec replay INCIDENT`")[2].split("```")[1].removeprefix("json"))["replay"]
    assert (list(document), list(document["traced"])) == (list(shown), list(shown["traced"]))
    assert list(document["traced"]["room"]) == list(shown["traced"]["room"])
    assert list(document["traced"]["origin"]) == list(shown["traced"]["origin"])


def test_a_step_that_a_script_left_out_replays_without_a_seed(tmp_path):
    """No seed, a shuffled loader and a step left out by hand: batch and random states come from the incident."""
    incidents = saved(tmp_path, LOADED)
    assert [(one.kind, one.step) for one in incidents][:2] == [("loss", 4), ("loss", 5)]

    found = replay_script(incidents[0], timeout=120)

    first = found.traced.origin.first
    assert found.repeats
    assert found.exact
    assert first.op == "aten.log.default"
    assert "torch.log(out - out)" in source_line(first.location)


def test_weights_that_were_spoiled_a_step_before_lead_there(tmp_path):
    """The loss is NaN because the step before divided by 0: that step is traced too, the optimizer's op named."""
    incident = saved(tmp_path, COUNTED)[0]
    assert incident.step == 1

    found = replay_script(incident, timeout=120)

    first = found.traced.origin.first
    assert (first.phase, source_line(first.location)) == ("optimizer", "optimizer.step()")
    assert any("the step before it was traced" in note for note in found.notes)


def test_a_script_that_changed_is_told(tmp_path):
    """A script whose model has other shapes since is an error with the reason."""
    [incident] = saved(tmp_path, INLINE)
    changed = INLINE.replace(
        "nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)", "nn.Linear(4, 2), nn.Identity(), nn.Identity()"
    )
    (tmp_path / "train.py").write_text(textwrap.dedent(changed), encoding="utf-8")

    with pytest.raises(NotReachedError, match="Step 5 was not reached: CheckpointError"):
        replay_script(incident, timeout=120)


@pytest.mark.distributed
def test_ranks_replay_together_and_the_one_at_fault_is_named(tmp_path):
    """Two ranks under DDP skip one step because of one of them: the other's incident leads to that rank's line."""
    incidents = saved(tmp_path, RANKS)
    assert [(one.step, one.rank) for one in incidents] == [(2, 0), (2, 1)]

    found = replay_script(incidents[0], timeout=120)

    first = found.traced.origin.first
    assert found.exact
    assert (found.rank, found.traced.rank) == (0, 1)
    assert source_line(first.location) == "return self.b(hidden * hidden)"
    assert first.location.module == ""
