"""Each sink hands on what a monitor records, and none that fails stops a training."""

from __future__ import annotations

import io
import logging
import math
import re
import subprocess
import sys
import urllib.request

import pytest

from mixprec.errors import MissingExtraError
from mixprec.monitor import ModuleRecord, StepRecord
from mixprec.monitor._outlets import Outlets
from mixprec.monitor.sinks import RunFacts, Sink
from mixprec.monitor.sinks.live import LiveSink, sparkline
from mixprec.monitor.sinks.prometheus import PrometheusSink
from mixprec.records import Finding, Severity

FACTS = RunFacts(started=1.0, command=("train.py",))
STEP = StepRecord(
    7,
    looked=True,
    time=2.0,
    loss=0.5,
    scale=65536.0,
    scale_after=65536.0,
    event="hold",
    grad_norm=2.0,
    lr=1e-3,
    format="fp16",
    modules={'a"b': ModuleRecord("fp16", -1.0, 2.0, 15.0, "fp16", 3.5)},
)
SKIPPED = StepRecord(
    8, loss=math.inf, scale=65536.0, scale_after=32768.0, event="back_off", reason="found_inf", benign=False, why="no"
)
FINDING = Finding("MP012", "scale-collapse", Severity.ERROR, "The scale falls.")


def feed(sink):
    """Tells `sink` of a run of two steps and an alert."""
    sink.begin(FACTS)
    sink.step(STEP)
    sink.step(SKIPPED)
    sink.finding(FINDING, 8)
    return sink


# Prometheus


def test_prometheus_serves_the_latest_numbers():
    """A scrape gets the text format: types, labels that are escaped, counters, infinities by their names."""
    sink = feed(PrometheusSink(port=0))
    try:
        with urllib.request.urlopen(sink.address, timeout=10) as answer:
            body = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    finally:
        sink.close()

    assert 'mixprec_loss{rank="0"} +Inf' in body
    assert 'mixprec_scale{rank="0"} 65536' in body
    assert 'mixprec_steps_total{rank="0"} 2' in body
    assert 'mixprec_skipped_total{rank="0"} 1' in body
    assert 'mixprec_alerts_total{rank="0",code="MP012"} 1' in body
    assert 'mixprec_headroom_bits{rank="0",module="a\\"b"} 15' in body
    for line in body.splitlines():
        assert re.fullmatch(r'(# (HELP|TYPE) mixprec_\w+ .+|mixprec_\w+\{(\w+="([^"\\]|\\.)*",?)+\} [-+\w.]+)', line), (
            line
        )


def test_prometheus_gives_its_port_back():
    """A closed sink has no address, and another one can take the port."""
    first = feed(PrometheusSink(port=0))
    port = int(first.address.rpartition(":")[2].partition("/")[0])
    first.close()
    assert first.address is None

    second = feed(PrometheusSink(port=port))
    assert second.address.endswith(f":{port}/metrics")
    second.close()


# live


def test_live_writes_plain_lines_where_there_is_no_terminal():
    """Into a file go lines without control characters: the first step at once, the last one at the end."""
    file = io.StringIO()
    sink = LiveSink(file, plain_interval=3600.0)
    feed(sink).close()

    first, last = file.getvalue().splitlines()
    assert first == "step 7  loss 0.5  scale 6.554e+04  norm 2  lr 0.001"
    assert last.startswith("step 8  loss inf")
    assert "skipped (no)" in last
    assert "\x1b" not in file.getvalue()


def test_live_draws_on_a_terminal(monkeypatch):
    """On a terminal there are sparklines, bars of headroom by module and the latest events."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file = Terminal()
    sink = LiveSink(file, interval=0.0)
    feed(sink).close()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())

    assert "step 8" in shown
    assert re.search(r"loss +inf +▁!", shown)
    assert re.search(r'a"b +█+░+ +3.5 bits', shown)
    assert "step 8: skipped: no" in shown
    assert "MP012" in shown


def test_sparklines_show_what_is_missing():
    """The lowest is the lowest bar, the highest the highest; gaps and what is not finite have signs of their own."""
    assert sparkline([0.0, 7.0]) == "▁█"
    assert sparkline([None, math.inf, 1.0]) == "·!▁"
    assert sparkline(range(100), 4) == "▁▃▆█"
    assert sparkline([]) == ""


def test_other_ranks_are_quiet():
    """On rank 1 a live view is never begun; a sink of every rank is."""
    file, seen = io.StringIO(), []

    class Everywhere(Sink):
        every_rank = True

        def step(self, record):
            seen.append(record.step)

    outlets = Outlets([LiveSink(file), Everywhere()])
    outlets.begin(RunFacts(started=1.0, rank=1, world=2))
    outlets.step(STEP)
    outlets.close()

    assert file.getvalue() == ""
    assert seen == [7]


# TensorBoard and Weights & Biases


def test_tensorboard_has_every_number(tmp_path):
    """The event file holds loss, scale and headroom at their steps; what is not finite is left out."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra `tensorboard` is not installed"
    )
    from mixprec.monitor.sinks.tensorboard import TensorBoardSink

    feed(TensorBoardSink(tmp_path)).close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()

    assert [(e.step, e.value) for e in events.Scalars("mixprec/loss")] == [(7, 0.5)]
    assert [e.value for e in events.Scalars("mixprec/scale")] == [65536.0, 65536.0]
    assert [e.value for e in events.Scalars('mixprec/headroom/a"b')] == [15.0]


def test_wandb_has_every_number():
    """A run gets our numbers on an axis of their own, and alerts as alerts; it stays open, being its owner's."""
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    from mixprec.monitor.sinks.wandb import WandbSink

    class Run:
        def __init__(self):
            self.logged, self.alerts, self.metrics = [], [], []

        def define_metric(self, name, step_metric=None):
            self.metrics.append((name, step_metric))

        def log(self, numbers):
            self.logged.append(numbers)

        def alert(self, title, text, level):
            self.alerts.append((title, level))

    run = Run()
    feed(WandbSink(run)).close()

    assert run.metrics == [("mixprec/step", None), ("mixprec/*", "mixprec/step")]
    assert [numbers["mixprec/step"] for numbers in run.logged] == [7, 8]
    assert run.logged[0]["mixprec/loss"] == 0.5
    assert run.alerts == [("MP012 scale-collapse", "ERROR")]


OFFLINE = """
import sys
import torch
from mixprec import Monitor
from mixprec.monitor.sinks.wandb import WandbSink
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
settings = {"mode": "offline", "dir": sys.argv[1], "project": "p"}
with Monitor(layer, optimizer, sinks=[WandbSink(**settings)]):
    for _ in range(3):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""


def test_wandb_runs_offline(tmp_path):
    """Without a network a run is written to disk, our numbers in it."""
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    subprocess.run([sys.executable, "-c", OFFLINE, str(tmp_path)], check=True, timeout=120, capture_output=True)

    (written,) = tmp_path.rglob("*.wandb")
    assert b"mixprec/loss" in written.read_bytes()


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_extra_is_named(name, monkeypatch):
    """Without the package the import says which extra to install."""
    for module in [m for m in sys.modules if m.partition(".")[0] == name or m.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, f"mixprec.monitor.sinks.{name}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(MissingExtraError, match=rf"pip install 'mixprec\[{name}\]'"):
        __import__(f"mixprec.monitor.sinks.{name}")


# faults


def test_a_sink_that_fails_is_dropped_and_the_others_go_on(caplog):
    """A full disk is named once; every other sink still gets every record."""
    seen = []

    class Full(Sink):
        def step(self, record):
            raise OSError(28, "No space left on device")

    class Good(Sink):
        def step(self, record):
            seen.append(record.step)

    outlets = Outlets([Full(), Good()])
    outlets.begin(FACTS)
    with caplog.at_level(logging.WARNING, "mixprec.monitor"):
        for _ in range(3):
            outlets.step(STEP)

    assert seen == [7, 7, 7]
    assert [record.getMessage() for record in caplog.records] == [
        "Full failed in step and gets no more records: OSError: [Errno 28] No space left on device"
    ]
