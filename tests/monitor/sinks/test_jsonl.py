"""A run's file is readable whatever happened to the process that wrote it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.errors import InvalidValueError
from mixprec.monitor import ModuleRecord, StepRecord, read_run
from mixprec.monitor._record import from_json, to_row
from mixprec.monitor.sinks import RunFacts
from mixprec.monitor.sinks.jsonl import JsonlSink, last_step
from mixprec.records import Evidence, Finding, Fix, Location, Severity

FINDING = Finding(
    "MP133",
    "nan-hidden-in-log",
    Severity.WARNING,
    "The loss was nan.",
    Location(module="blocks.0"),
    (Evidence("loss", math.nan, step=3),),
    Fix("Look."),
)


def write(folder, steps, *, end=True, **sink):
    """A run of these steps in `folder`."""
    made = JsonlSink(folder, **sink)
    made.begin(RunFacts(started=1.0, versions={"torch": "2"}))
    for step in steps:
        made.step(StepRecord(step, loss=1.0 / (step + 1), lr=0.1))
    if end:
        made.close()
    return made


def test_what_is_written_is_read(tmp_path):
    """Steps, findings, facts and the ordinary end come back; one file, one line each."""
    sink = write(tmp_path, range(3), end=False)
    sink.finding(FINDING, 3)
    sink.close()

    (rank,) = read_run(tmp_path).ranks
    assert [record.step for record in rank.steps] == [0, 1, 2]
    ((step, finding),) = rank.findings
    assert (step, finding.code, finding.location.module, finding.fix.text) == (3, "MP133", "blocks.0", "Look.")
    assert rank.facts["versions"] == {"torch": "2"}
    assert rank.ended
    assert (rank.starts, rank.torn) == (1, 0)
    lines = (tmp_path / "rank0.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["run", "step", "step", "step", "finding", "end"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.builds(
        StepRecord,
        step=st.integers(0, 10**9),
        looked=st.booleans(),
        loss=st.none() | st.floats(),
        scale=st.none() | st.floats(1, 2.0**40),
        benign=st.none() | st.booleans(),
        why=st.text(max_size=8),
        lrs=st.tuples() | st.tuples(st.floats(0, 1), st.floats(0, 1)),
        memory=st.none() | st.integers(0, 10**12),
        modules=st.dictionaries(
            st.text(max_size=4), st.builds(ModuleRecord, dtype=st.just("fp16"), high=st.floats(), zero=st.floats(0, 1))
        ),
        bad_weights=st.tuples() | st.tuples(st.text(max_size=4)),
    )
)
def test_any_record_survives(record):
    """To a row, to JSON without a number that JSON cannot hold, and back, a record is the same to six digits."""
    again = from_json(json.loads(json.dumps(to_row(record), allow_nan=False)))

    assert (
        again.loss == pytest.approx(record.loss, rel=1e-5, abs=1e-300, nan_ok=True)
        if record.loss is not None
        else (again.loss is None)
    )
    assert (again.step, again.looked, again.benign, again.why, again.memory) == (
        record.step,
        record.looked,
        record.benign,
        record.why,
        record.memory,
    )
    assert again.bad_weights == record.bad_weights
    assert again.lrs == pytest.approx(record.lrs, rel=1e-5, abs=1e-9)
    assert again.modules.keys() == record.modules.keys()
    for path, module in record.modules.items():
        assert again.modules[path].high == pytest.approx(module.high, rel=1e-5, abs=1e-300, nan_ok=True)


@pytest.mark.parametrize("cut", range(1, 120, 7))
def test_a_torn_last_line_is_left_out(tmp_path, cut):
    """With its last bytes cut off a file gives all whole lines and counts the torn one."""
    write(tmp_path, range(5), end=False)
    path = tmp_path / "rank0.jsonl"
    left = path.read_bytes()[:-cut]
    path.write_bytes(left)
    *whole, last = left.split(b"\n")
    complete = last.startswith(b"{") and last.endswith(b"}")

    (rank,) = read_run(tmp_path).ranks
    assert len(rank.steps) == len(whole) - 1 + complete
    assert rank.torn == bool(last and not complete)
    assert not rank.ended


def test_a_run_that_is_resumed_goes_on(tmp_path):
    """After a torn line a new start appends: earlier and later steps are there, and one line is lost."""
    write(tmp_path, range(5), end=False)
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    assert last_step(tmp_path, 0) == 3

    write(tmp_path, range(4, 8))

    (rank,) = read_run(tmp_path).ranks
    assert [record.step for record in rank.steps] == list(range(8))
    assert (rank.starts, rank.torn, rank.ended) == (2, 1, True)


def test_a_step_that_was_done_again_is_the_later_one(tmp_path):
    """Resuming from a checkpoint repeats steps; the record of a step is that of its last time."""
    write(tmp_path, [0, 1, 2])
    sink = JsonlSink(tmp_path)
    sink.begin(RunFacts(started=2.0))
    sink.step(StepRecord(2, loss=9.0))
    sink.close()

    assert [record.loss for record in read_run(tmp_path).steps] == pytest.approx([1.0, 0.5, 9.0])


def test_files_rotate_and_the_oldest_go(tmp_path):
    """No file grows past its size, the reader joins them in order, and only so many are kept."""
    write(tmp_path, range(200), rotate_bytes=2000, keep=3)

    files = sorted(tmp_path.glob("rank0*.jsonl"))
    assert len(files) == 4
    assert all(path.stat().st_size <= 2000 for path in files)
    steps = [record.step for record in read_run(tmp_path).steps]
    assert steps == list(range(steps[0], 200))
    assert steps[0] > 0


def test_a_folder_without_a_run_is_refused(tmp_path):
    """The error says what is accepted; beside it, a folder with a run is read."""
    with pytest.raises(InvalidValueError, match=r"rank0\.jsonl"):
        read_run(tmp_path)
    write(tmp_path, range(1))
    assert read_run(tmp_path).steps


def test_a_run_that_ended_between_two_files(tmp_path):
    """Killed after a file was renamed and before the next one was opened: what was renamed is read, and resumed."""
    write(tmp_path, range(5), end=False)
    (tmp_path / "rank0.jsonl").rename(tmp_path / "rank0.1.jsonl")

    assert [record.step for record in read_run(tmp_path).steps] == list(range(5))
    assert last_step(tmp_path, 0) == 4


PARENT = """
import os, random, signal, sys, time, warnings
from mixprec.monitor._record import ModuleRecord, StepRecord
from mixprec.monitor.sinks import RunFacts
from mixprec.monitor.sinks.jsonl import JsonlSink
warnings.simplefilter("ignore")
random.seed(0)
modules = {f"blocks.{i}": ModuleRecord("fp16", -1.0, 1.0, 15.0) for i in range(20)}
for number in range(50):
    path = f"{sys.argv[1]}/{number}"
    child = os.fork()
    if child == 0:
        sink = JsonlSink(path, rotate_bytes=20_000)
        sink.begin(RunFacts(started=1.0))
        for step in range(10**9):
            sink.step(StepRecord(step, loss=1.0, modules=modules))
    while not os.path.exists(path + "/rank0.jsonl"):
        time.sleep(0.001)
    time.sleep(random.uniform(0.0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork, which makes 50 processes cheap")
def test_killed_at_a_random_moment_fifty_times(tmp_path):
    """A process that does nothing but write is killed 50 times: every line but the last is whole, each time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", PARENT, str(tmp_path)], check=True, timeout=120, env=environment)

    folders = list(tmp_path.iterdir())
    assert len(folders) == 50
    lengths = []
    for folder in folders:
        for path in folder.iterdir():
            assert all(json.loads(line) for line in path.read_bytes().split(b"\n")[:-1])
        (rank,) = read_run(folder).ranks
        steps = [record.step for record in rank.steps]
        assert steps == list(range(steps[0], steps[0] + len(steps))) if steps else rank.torn <= 1
        assert rank.torn <= 1
        lengths.append(len(steps))
    assert max(lengths) > 10
