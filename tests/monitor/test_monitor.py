"""A monitor is opened and closed without a trace, says what is wrong once, and never breaks the run."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import textwrap
import weakref

import pytest
import torch
from torch import nn

import mixprec
from mixprec.errors import InvalidValueError, UnknownNameError
from mixprec.monitor import Level, Monitor, _monitor, read_run
from mixprec.monitor._numbers import Flight
from mixprec.monitor.alerts import Rule
from mixprec.monitor.sinks import Sink

SELDOM = Level("seldom", 10**9, 16)


class Nowhere(Level):
    """No step is looked at."""

    def looks_at(self, step: int) -> bool:
        return False


def hooks(model) -> int:
    """Forward hooks on all modules of `model`."""
    return sum(len(module._forward_hooks) for module in model.modules())


def test_closing_leaves_torch_as_it_was(training):
    """After `close` no hook is left on the model, the tapped methods are torch's own, and stepping goes on."""
    before = (torch.amp.GradScaler.step, torch.autograd.backward, nn.utils.clip_grad_norm_)
    run = training(torch.amp.GradScaler("cpu"), torch.float16)
    assert hooks(run.model)
    assert torch.amp.GradScaler.step is not before[0]

    run.run(2)

    assert hooks(run.model) == 0
    assert (torch.amp.GradScaler.step, torch.autograd.backward, nn.utils.clip_grad_norm_) == before
    run.step()
    assert len(run.monitor.records) == 2


def test_hooks_are_there_only_in_steps_that_are_looked_at(training):
    """Between two looks only the whole model has a hook."""
    run = training(level=Level("seldom", every=10, elements=16))
    counts = []
    with run.monitor:
        for _ in range(12):
            counts.append(hooks(run.model))
            run.step()

    due = [step in (0, 1, 2, 4, 8, 10) for step in range(12)]
    assert counts == [4 if looked else 1 for looked in due]
    assert [record.looked for record in run.monitor.records] == due


def test_a_step_after_a_skip_is_looked_at(training):
    """A skipped step makes the next one worth looking at, whatever its number."""
    run = training(torch.amp.GradScaler("cpu", init_scale=2.0**24), torch.float16, level=SELDOM)

    records = run.run(12)

    skips = [record.step for record in records if record.skipped]
    assert skips[-1] >= 3  # the last of them after the steps that are looked at anyway
    assert records[skips[-1] + 1].looked
    assert not records[-1].looked


def test_logits_are_read_as_often_as_the_level_says(training):
    """And in every step that is looked at: 1, 2, 4 and 8 here."""
    records = training(level=Level("seldom", 10**9, 16, logits=3)).run(12)

    known = [record.step for record in records if record.logit is not None]
    assert known == [0, 1, 2, 3, 4, 6, 8, 9]


def test_fast_steps_are_recorded_together(training, monkeypatch):
    """Steps of the same moment wait for each other, so many at most."""
    monkeypatch.setattr(_monitor, "TOGETHER", 3600.0)
    monkeypatch.setattr(_monitor, "IN_FLIGHT", 3)
    run = training(level=Nowhere("nowhere", 10**9, 16))
    counts = []
    with run.monitor as monitor:
        for _ in range(10):
            run.step()
            counts.append(len(monitor.records))

    assert counts == [0] * 3 + [4] * 4 + [8] * 3
    assert len(monitor.records) == 10


def test_a_step_that_failed_or_was_looked_at_is_recorded_at_once(training, monkeypatch):
    """With it all those before it; ordinary ones wait."""
    monkeypatch.setattr(_monitor, "TOGETHER", 3600.0)
    run = training(level=SELDOM)
    counts = []
    with run.monitor as monitor:
        for step in range(8):
            run.step(factor=float("nan") if step == 6 else 1.0)
            counts.append(len(monitor.records))

    assert counts == [1, 2, 3, 3, 5, 5, 7, 8]  # looked at: 0, 1, 2, 4 and what comes after a failure


def test_what_has_not_arrived_is_waited_for_only_when_too_much_is_under_way(training, monkeypatch):
    """Numbers that are still on their way keep their step, and those after it, from being recorded."""
    monkeypatch.setattr(_monitor, "TOGETHER", 0.0)
    monkeypatch.setattr(_monitor, "IN_FLIGHT", 3)
    monkeypatch.setattr(Flight, "landed", property(lambda self: False))
    run = training()
    counts = []
    with run.monitor as monitor:
        for _ in range(5):
            run.step()
            counts.append(len(monitor.records))

    assert counts == [0, 0, 0, 1, 2]
    assert len(monitor.records) == 5


def test_alerts_are_logged_and_called_once(training, caplog):
    """A NaN loss is said once in the log and once to the callback, with its code and what to do."""
    told = []
    run = training(on_alert=told.append)
    with caplog.at_level(logging.WARNING, "mixprec.monitor"):
        run.run(4, factor=float("nan"))

    codes = [finding.code for finding in told]
    assert sorted(codes) == sorted(set(codes))
    assert {"MP133", "MP135"} <= set(codes)
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == len(told)
    assert any(line.startswith("step 0: MP133 nan-hidden-in-log: The loss of step 0 was nan") for line in logged)
    assert run.monitor.findings == told


def test_a_faulty_callback_rule_or_sink_does_not_reach_the_run(training, caplog):
    """Each fault is named once, and all steps are recorded and trained."""

    class Broken(Rule):
        code = "MP133"

        def look(self, window):
            raise RuntimeError("rule")

    class BrokenSink(Sink):
        def step(self, record):
            raise RuntimeError("sink")

    def callback(finding):
        raise RuntimeError("callback")

    with caplog.at_level(logging.WARNING, "mixprec.monitor"):
        faulty = training(rules=[Broken()], sinks=[BrokenSink()])
        records = faulty.run(3)
        told = training(on_alert=callback).run(3, factor=float("nan"))

    assert len(records) == len(told) == 3
    text = " ".join(record.getMessage() for record in caplog.records)
    assert text.count("RuntimeError: rule") == 1
    assert text.count("RuntimeError: sink") == 1
    assert text.count("RuntimeError: callback") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (({"a": 3},), InvalidValueError),
        ((nn.Linear(2, 2), nn.Linear(2, 2)), InvalidValueError),
        ((nn.Linear(2, 2), "levels"), InvalidValueError),
    ],
)
def test_what_is_no_model_or_optimizer_is_refused(arguments, error):
    """The nearest rejections leave nothing behind; a model and its optimizer are accepted."""
    tapped = torch.amp.GradScaler.step
    with pytest.raises(error):
        Monitor(*arguments)
    with pytest.raises(UnknownNameError, match="light"):
        Monitor(nn.Linear(2, 2), level="ligth")
    assert torch.amp.GradScaler.step is tapped

    layer = nn.Linear(2, 2)
    Monitor(layer, torch.optim.SGD(layer.parameters(), lr=0.1)).close()


def test_a_training_may_go():
    """A monitor keeps no model and no optimizer alive; when a training is over the next one's steps close at once."""
    with Monitor(level="deep") as monitor:
        for _ in range(2):
            layer = nn.Linear(2, 2)
            monitor.watch(nn.Sequential(layer, nn.BatchNorm1d(2)))
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            monitor.watch_optimizer(optimizer)
            for _ in range(3):
                layer(torch.ones(1, 2)).sum().backward()
                optimizer.step()
            gone = weakref.ref(optimizer), weakref.ref(layer)
            del optimizer, layer
            gc.collect()
            assert [each() for each in gone] == [None, None]

    assert len(monitor.records) == 6
    assert [record.optimizers for record in monitor.records] == [()] * 3 + [("optimizer1",)] * 3


def test_a_wrapped_optimizer_is_watched(training):
    """Of a wrapper that hands `step` on, as Accelerate's and Lightning's do, the inner optimizer's steps count."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self, closure=None):
            return self.optimizer.step()

    layer = nn.Linear(2, 2)
    optimizer = Wrapper(torch.optim.SGD(layer.parameters(), lr=0.1))
    with Monitor(layer, optimizer, level="deep") as monitor:
        for _ in range(3):
            layer(torch.ones(1, 2)).sum().backward()
            optimizer.step()

    assert len(monitor.records) == 3
    assert all(record.grad_norm > 0 for record in monitor.records)


def test_a_failing_step_is_kept(training, tmp_path):
    """With `incidents=True` a skipped step leaves an incident in the folder; without a folder that is refused."""
    layer = nn.Linear(2, 2)
    with pytest.raises(InvalidValueError, match="an IncidentStore where there is no folder"):
        Monitor(layer, incidents=True)

    scaler = torch.amp.GradScaler("cpu")
    run = training(scaler, torch.float16, folder=tmp_path, incidents=True)
    with run.monitor:
        run.step()
        assert not list((tmp_path / "incidents").glob("step*"))
        run.step(factor=float("nan"))
        run.step()

    assert [folder.name for folder in (tmp_path / "incidents").glob("step*")] == ["step000001-skipped-rank0"]
    assert [record.applied for record in run.monitor.records] == [True, False, True]


def test_it_is_the_packages_own():
    """`mixprec.Monitor` is the class."""
    assert mixprec.Monitor is Monitor


def script(tmp_path, text: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs `text` as a script of its own."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(path), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


TRAIN = """
import sys, time, torch
from mixprec import Monitor
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
monitor = Monitor(layer, optimizer, folder=sys.argv[1] + "/run")
for step in range(5):
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


def test_a_script_that_forgets_to_close_loses_nothing_and_one_that_dies_loses_the_last_moment(tmp_path):
    """At exit the last step is recorded. A second start goes on with the numbering; `os._exit` costs what waits."""
    assert script(tmp_path, TRAIN).returncode == 0
    (rank,) = read_run(tmp_path / "run").ranks
    assert [record.step for record in rank.steps] == [0, 1, 2, 3, 4]
    assert (rank.starts, rank.ended) == (1, True)

    assert script(tmp_path, TRAIN.replace("range(5)", "range(4)") + "\nimport os; os._exit(3)").returncode == 3
    (rank,) = read_run(tmp_path / "run").ranks
    assert [record.step for record in rank.steps] == list(range(8))  # steps 0, 1, 2 of the run were looked at
    assert (rank.starts, rank.ended) == (2, False)


DISTRIBUTED = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from mixprec import Monitor

def train(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with Monitor(model, optimizer, folder=f"{folder}/run", level="deep"):
        for step in range(6):
            with torch.autocast("cpu", torch.float16):
                loss = model(torch.ones(2, 4) * (rank + 1)).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if step == 3 and rank == 1:
                next(model.parameters()).grad[0] = float("inf")  # one rank alone
            scaler.step(optimizer)
            scaler.update()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1],), nprocs=2)
"""


@pytest.mark.distributed
def test_two_ranks_write_two_files(tmp_path):
    """Each rank has its file; merged by step they show the losses of both, and where one alone skipped."""
    done = script(tmp_path, DISTRIBUTED)
    assert done.returncode == 0, done.stderr

    run = read_run(tmp_path / "run")
    assert [(rank.rank, rank.facts["world"], len(rank.steps)) for rank in run.ranks] == [(0, 2, 6), (1, 2, 6)]
    assert set(run.steps[0].modules) == {"(model)", "0", "1", "2"}
    merged = run.by_step()
    assert all(step[0].loss != step[1].loss for step in merged.values())
    assert [step for step, ranks in merged.items() if ranks[0].applied != ranks[1].applied] == [3]
    assert merged[3][1].bad_gradients == ("0.weight",)


def test_a_scaler_may_be_named(tmp_path):
    """By position or by name it changes nothing; what is no scaler is refused with what is accepted."""
    model = nn.Linear(2, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=8.0)

    def scales(*arguments, **named):
        with Monitor(model, *arguments, **named) as monitor:
            scaler.scale(model(torch.ones(3, 2)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return [record.scale for record in monitor.records]

    assert scales(optimizer) == scales(optimizer, scaler) == scales(optimizer, scaler=scaler) == [8.0]
    with pytest.raises(InvalidValueError, match=r"accepted is a torch\.amp\.GradScaler"):
        Monitor(model, optimizer, scaler=3)
