"""Incidents on disk are whole, verified, bounded in number and size, and never a reason for training to stop."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from mixprec.errors import CheckpointError, InvalidValueError
from mixprec.monitor.incident import Call, IncidentStore, Moment, RandomStates, load_incident, load_incidents


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.b(self.a(x)))


def moment(step=0, kind="skipped", model=None, batch=None):
    model = Tied() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters())
    return Moment(
        kind,
        step,
        roots=(model,),
        buffers=({},),
        calls=(Call(0, (torch.ones(2, 4) if batch is None else batch,), {"mask": None}),),
        optimizers=(optimizer,),
        losses=(float("nan"),),
        before=RandomStates.now(),
    )


def told():
    said = []
    return said, said.append


def test_what_is_saved_is_what_is_read(tmp_path):
    """Weights (tied ones once), batch, optimizer, losses and random states come back; every file has its check sum."""
    model = Tied()
    path = IncidentStore(tmp_path).save(moment(3, model=model))
    incident = load_incident(path)

    incident.verify()
    assert (incident.kind, incident.step, incident.rank, incident.scale) == ("skipped", 3, 0, None)
    assert str(incident.losses) == "(nan,)"
    weights = incident.weights(0)
    assert "b.weight" not in weights
    assert incident.facts["roots"][0]["alias"] == {"b.weight": "a.weight"}
    assert all(torch.equal(weights[name], t) for name, t in model.state_dict().items() if name in weights)
    [(root, args, kwargs)] = incident.calls()
    assert (root, kwargs) == (0, {"mask": None})
    assert torch.equal(args[0], torch.ones(2, 4))
    assert incident.optimizers()[0]["param_groups"][0]["lr"] == 1e-3
    assert incident.facts["command"]["argv"]
    assert incident.facts["versions"]["torch"] == torch.__version__


def test_random_states_come_back_exactly(tmp_path):
    """Numbers drawn after restoring the saved states are those that were drawn after saving."""
    import random

    import numpy as np

    path = IncidentStore(tmp_path).save(moment())

    def draw():
        return random.random(), float(np.random.rand()), torch.rand(3).tolist()

    load_incident(path).random("before").restore()
    first = draw()
    load_incident(path).random("before").restore()

    assert draw() == first
    assert draw() != first


def test_a_changed_file_is_noticed(tmp_path):
    """One flipped byte fails verification with the file's name; the untouched incident passes."""
    path = IncidentStore(tmp_path).save(moment())
    load_incident(path).verify()
    file = path / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)

    with pytest.raises(CheckpointError, match="not the file that was written") as caught:
        load_incident(path).verify()
    assert caught.value.key == "weights.safetensors"


def test_number_and_size_are_bounded_and_the_first_is_kept(tmp_path):
    """Of ten incidents three are kept: the first and the newest two; a size limit removes old ones too."""
    store = IncidentStore(tmp_path, max_incidents=3)
    for step in range(10):
        store.save(moment(step))
    assert [incident.step for incident in load_incidents(tmp_path)] == [0, 8, 9]

    size = sum(file.stat().st_size for file in store.paths()[0].iterdir())
    small = IncidentStore(tmp_path / "small", max_bytes=3 * size + (1 << 16))
    for step in range(6):
        small.save(moment(step))
    kept = [incident.step for incident in load_incidents(tmp_path / "small")]
    assert kept[0] == 0
    assert kept[-1] == 5
    assert len(kept) <= 4


def test_one_that_is_too_large_is_refused_and_reported(tmp_path):
    """An incident above max_bytes is not written, and the report has both numbers."""
    said, report = told()

    assert IncidentStore(tmp_path, max_bytes=1000, report=report).save(moment()) is None
    assert "max_bytes is 1,000" in said[0]
    assert load_incidents(tmp_path) == []


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path, monkeypatch):
    """ENOSPC in the middle of writing is told, raises nothing, and no half incident is left."""
    said, report = told()
    store = IncidentStore(tmp_path, report=report)

    def full(path, document):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mixprec.monitor.incident._store.write_json", full)
    assert store.save(moment(5)) is None
    monkeypatch.undo()

    assert "step 5 was not saved" in said[0]
    assert "No space left" in said[0]
    assert list(tmp_path.iterdir()) == []
    assert store.save(moment(6)) is not None


def test_too_little_free_disk_is_not_filled(tmp_path, monkeypatch):
    """Where the disk is nearly full nothing is begun."""
    said, report = told()
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000})())

    assert IncidentStore(tmp_path, report=report).save(moment()) is None
    assert "1,000 are free" in said[0]


def test_an_unsaveable_batch_is_reported_and_the_rest_is_saved(tmp_path):
    """A batch with a generator in it is saved without it, and the report names its place."""
    said, report = told()
    path = IncidentStore(tmp_path, report=report).save(moment(batch={"x": torch.ones(1), "g": (i for i in ())}))

    assert "batch[0]['g']" in said[0]
    assert torch.equal(load_incident(path).calls()[0][1][0]["x"], torch.ones(1))


def test_sensitive_batches_stay_out(tmp_path):
    """`keep_batches=False` writes no batch; everything else is there."""
    path = IncidentStore(tmp_path, keep_batches=False).save(moment())
    incident = load_incident(path)

    assert incident.calls() == []
    assert incident.loaded() == []
    assert incident.tensors("batches") == {}
    assert incident.weights(0)


def test_large_models_are_kept_as_check_sums(tmp_path):
    """`weights="checksum"` writes sums in the place of parameters, buffers as they were, and names the checkpoint."""
    store = IncidentStore(tmp_path, weights="checksum")
    store.checkpoint = "checkpoints/last.pt"
    incident = load_incident(store.save(moment()))

    assert set(incident.facts["roots"][0]["checksums"]) >= {"a.weight", "norm.weight"}
    assert not any("weight" in name for name in incident.weights(0))
    assert incident.facts["checkpoint"] == "checkpoints/last.pt"


def test_nothing_is_pickled(tmp_path):
    """No file of an incident holds a pickle or a zip."""
    path = IncidentStore(tmp_path).save(moment())

    for file in path.iterdir():
        assert file.suffix in (".json", ".safetensors")
        assert file.read_bytes()[:2] not in (b"\x80\x02", b"\x80\x04", b"PK")


@pytest.mark.parametrize(("argument", "value"), [("max_incidents", 0), ("weights", "some")])
def test_arguments_are_checked(tmp_path, argument, value):
    """Nonsense raises, the nearest sense does not."""
    with pytest.raises(InvalidValueError):
        IncidentStore(tmp_path, **{argument: value})
    IncidentStore(tmp_path, **{argument: {"max_incidents": 1, "weights": "save"}[argument]})


def test_no_folder_without_incident_raises_by_name(tmp_path):
    """What is no incident is an error that says what to name."""
    with pytest.raises(CheckpointError, match=r"Name a folder that holds an incident\.json"):
        load_incident(tmp_path)


KILLED = """
    import os, random, signal, sys, time
    import torch
    from torch import nn
    from mixprec.monitor.incident import Call, IncidentStore, Moment, RandomStates

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
    optimizer = torch.optim.AdamW(model.parameters())
    chance = random.Random(0)
    for run in range(50):
        heard, tell = os.pipe()
        child = os.fork()
        if child == 0:
            store = IncidentStore(sys.argv[1], max_incidents=4)
            step = run * 1000
            while True:
                call = Call(0, (torch.ones(8, 64),), {})
                store.save(Moment("skipped", step, roots=(model,), calls=(call,), optimizers=(optimizer,),
                                  before=RandomStates.now()))
                os.write(tell, b".")
                step += 1
        os.close(tell)
        for _ in range(run % 3):
            os.read(heard, 1)
        os.close(heard)
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes by signal")
def test_killed_fifty_times_every_incident_is_whole(tmp_path):
    """After 50 kills at random moments of saving every incident on disk verifies and reads, and none is half there."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], check=True, timeout=200)

    incidents = load_incidents(tmp_path)
    for incident in incidents:
        incident.verify()
        assert incident.calls()
        assert incident.weights(0)
        assert incident.random("before") is not None
    assert 1 <= len(incidents) <= 4 + 1
    IncidentStore(tmp_path).save(moment(99_999))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".writing-")]
