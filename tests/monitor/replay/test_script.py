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
from mixprec.monitor.replay import NotReachedError, kept_result, replay_script

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


BRANCHING = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for step in range(4):
        with torch.autocast("cpu", torch.float16):
            out = model(torch.randn(8, 4))
        optimizer.zero_grad()
        scaler.scale(out.float().square().sum() * (3.0 if step == 2 else 0.01)).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step == 2 and norm.isfinite():
            raise RuntimeError("another way")
        scaler.step(optimizer)
        scaler.update()
"""

OWN = """
    import torch
    from torch import nn
    from mixprec import Monitor

    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with Monitor(model, optimizer, folder=FOLDER, level="deep", incidents=True) as monitor:
        for step in range(4):
            x, gain = torch.randn(8, 4), 1e6 if step == 2 else 1.0
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                hidden = model(x) * gain
            scaler.scale(hidden.float().square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
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


def written(folder, text):
    """The script as a file."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text), encoding="utf-8")
    return script


def saved(folder, text):
    """The incidents that the script left behind, in a process of its own."""
    outcome = run_script(
        Command((str(written(folder, text)),)),
        entry="mixprec.monitor.incident:attach",
        options={"folder": str(folder / "incidents")},
        cwd=folder,
        timeout=120,
    )
    assert outcome.errors == ()
    assert outcome.returncode == 0, outcome.output
    return load_incidents(folder / "incidents")


@pytest.mark.slow
def test_a_skipped_step_of_a_script_replays(tmp_path):
    """The sixth step, its data drawn in the loop: reached by a jump in a new process, bit for bit, its line named."""
    [incident] = saved(tmp_path, INLINE)
    assert (incident.kind, incident.step) == ("skipped", 5)

    shown = CliRunner().invoke(main, ["replay", str(incident.folder)])
    assert shown.exit_code == 1, shown.output
    assert "Replayed twice, both bit for bit as recorded." in shown.output
    assert "return self.b(hidden) * gain" in shown.output
    assert "running all" not in shown.output
    assert kept_result(incident.folder)["text"] == "return self.b(hidden) * gain"


def test_another_precision_is_told_as_json(tmp_path, in_process):
    """In bfloat16 the step is clean; the document has every op, and the fields that the manual shows."""
    script = written(tmp_path, INLINE)
    [incident] = in_process.record(script)
    with in_process.instead_of_processes():
        line = ["replay", str(incident.folder), "--precision", "bf16-mixed", "--deep", "--format", "json", str(script)]
        document = json.loads(CliRunner().invoke(main, line).output)["replay"]

    assert document["precision"] == "bf16-mixed"
    assert document["traced"]["origin"]["first"] is None
    assert len(document["traced"]["records"]) == document["traced"]["ops"]
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
    shown = json.loads(page.partition("## `mixprec replay INCIDENT`")[2].split("```")[1].removeprefix("json"))["replay"]
    assert (list(document), list(document["traced"])) == (list(shown), list(shown["traced"]))
    assert list(document["traced"]["room"]) == list(shown["traced"]["room"])
    assert list(document["traced"]["origin"]) == list(shown["traced"]["origin"])
    assert kept_result(incident.folder) is None  # it says nothing of the step as it was


def test_a_step_that_a_script_left_out_replays_without_a_seed(tmp_path, in_process):
    """No seed, a shuffled loader and a step left out by hand: batch and random states come from the incident."""
    script = written(tmp_path, LOADED)
    incidents = in_process.record(script)
    assert [(one.kind, one.step) for one in incidents][:2] == [("loss", 4), ("loss", 5)]

    found = in_process.replay(incidents[0], script)

    first = found.traced.origin.first
    assert (found.repeats, found.exact) == (True, True)
    assert first.op == "aten.log.default"
    assert "torch.log(out - out)" in source_line(first.location)


def test_weights_that_were_spoiled_a_step_before_lead_there(tmp_path, in_process):
    """The loss is NaN because the step before divided by 0: that step is traced too, the optimizer's op named."""
    script = written(tmp_path, COUNTED)
    incident = in_process.record(script)[0]
    assert incident.step == 1

    found = in_process.replay(incident, script)

    first = found.traced.origin.first
    assert (first.phase, source_line(first.location)) == ("optimizer", "optimizer.step()")
    assert any("the step before it was traced" in note for note in found.notes)


def test_a_script_that_changed_is_told(tmp_path, in_process):
    """A script whose model has other shapes since is an error with the reason."""
    [incident] = in_process.record(written(tmp_path, INLINE))
    changed = INLINE.replace(
        "nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)", "nn.Linear(4, 2), nn.Identity(), nn.Identity()"
    )
    script = written(tmp_path, changed)

    with pytest.raises(NotReachedError, match="Step 5 was not reached: CheckpointError"):
        in_process.replay(incident, script)


def test_a_scale_that_leads_the_script_another_way_ends_no_replay(tmp_path, in_process):
    """At a smaller loss scale the script fails on another way: that scale is not named, and the rest is told."""
    script = written(tmp_path, BRANCHING)
    [incident] = in_process.record(script, most=1)

    found = in_process.replay(incident, script)

    assert (found.repeats, found.exact, found.avoiding_scale) == (True, True, None)
    assert any("another way" in note for note in found.notes)
    assert found.traced.origin.first.phase == "backward"


def test_a_monitor_of_the_scripts_own_writes_nothing_in_a_replay(tmp_path, in_process):
    """The record of the run is the same after its step was run again, and its incidents are those that there were."""
    script = written(tmp_path, OWN.replace("FOLDER", repr(str(tmp_path / "run"))))
    in_process.record(script)
    [incident] = load_incidents(tmp_path / "run")
    before = (tmp_path / "run" / "rank0.jsonl").read_bytes()

    found = in_process.replay(incident, script)

    assert (found.repeats, found.exact) == (True, True)
    assert source_line(found.traced.origin.first.location) == "hidden = model(x) * gain"
    assert (tmp_path / "run" / "rank0.jsonl").read_bytes() == before
    assert len(load_incidents(tmp_path / "run")) == 1


@pytest.mark.slow
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
