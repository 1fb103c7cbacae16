"""The demo runs, and what it says about a run follows from what the run recorded."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(standard output, numbers, page) of a short demo that is not on a terminal."""
    out = tmp_path_factory.mktemp("demo")
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", "--epochs", "30", "--json", "--out", out],
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("training: ") == 6, run.stderr
    numbers = json.loads((out / "demo-report.json").read_text(encoding="utf-8"))
    return run.stdout, numbers, (out / "demo-report.html").read_text(encoding="utf-8")


def test_table_numbers_and_page_tell_the_same(written):
    """Each of the six runs is in the table, in the JSON document and on the page, with the same reason."""
    shown, numbers, page = written

    assert len(numbers["runs"]) == 6
    assert numbers["schema"] == 1
    flat = " ".join(shown.split())
    for run in numbers["runs"]:
        assert f"{'trained' if run['worked'] else 'did not train'}. {' '.join(run['reason'].split())}" in flat
        assert run["reason"].split(".")[0].replace("'", "&#39;") in page
    assert max(map(len, shown.splitlines()[:-2])) <= 80


def test_the_naive_runs_show_their_fault_even_in_a_few_steps(written):
    """30 epochs are enough to see that unscaled fp16 loses gradients, that .half() breaks, that mixed modes do not."""
    runs = {run["mode"]: run for run in written[1]["runs"]}

    assert runs["fp16-unscaled"]["flushed"] > 0.2
    assert runs["fp16-mixed"]["flushed"] < 0.02
    assert not all(math.isfinite(float(loss)) for loss in runs["half"]["losses"])
    assert all(math.isfinite(float(loss)) for loss in runs["fp16-mixed"]["losses"])


def test_bytes_are_those_of_the_formats(written):
    """16-bit weights take half of float32's bytes; the mixed modes keep float32 weights and save activations."""
    held = {run["mode"]: run["bytes"] for run in written[1]["runs"]}

    assert held["half"]["weights"] * 2 == held["bf16-pure"]["weights"] * 2 == held["fp32"]["weights"]
    assert held["fp16-mixed"]["weights"] == held["fp32"]["weights"]
    assert held["fp32"]["optimizer"] == 2 * held["fp32"]["weights"]
    assert held["fp16-mixed"]["activations"] == held["bf16-mixed"]["activations"] < held["fp32"]["activations"]


def test_the_readme_states_the_bytes_that_the_demo_counts(written):
    """In the README's table weights, gradients, optimizer and activations of each run are the demo's, in KiB."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    held = [run["bytes"] for run in written[1]["runs"]]
    rows = re.findall(r"^\| [^|]+ \| [\d.na]+ \| [\d.]+ % \|(.*)\|$", readme, re.MULTILINE)

    assert len(rows) == len(held)
    for row, bytes_ in zip(rows, held, strict=True):
        parts = (bytes_[name] for name in ("weights", "gradients", "optimizer", "activations"))
        assert [cell.strip() for cell in row.split("|")] == [f"{part / 1024:.0f} KiB" for part in parts]


@pytest.fixture
def verdicts(monkeypatch):
    """The module that judges runs."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module("demo_verdicts")


@pytest.fixture
def judged(verdicts):
    """`judged(mode, **changes)`: a run of 900 clean steps beside an fp32 run that learned, with some fields changed."""
    held = verdicts.task.Bytes(weights=400, gradients=400, optimizer=800, activations=1000)
    plain = verdicts.task.Result("fp32", [0.3, 0.02], [1.0, 1.0], 0.02, 0.93, 900, 0, 0.0, held)
    return lambda mode, **changes: verdicts.Judged(replace(plain, mode=mode, **changes), plain, 0.07)


def test_a_run_that_matches_fp32_worked(judged):
    """At the margins: 3 points less accuracy and 1.25 times the loss still count, a little more of either does not."""
    assert judged("bf16-mixed", accuracy=0.901, test_loss=0.0249).worked
    assert not judged("bf16-mixed", accuracy=0.899).worked
    assert not judged("bf16-mixed", test_loss=0.0251).worked
    assert not judged("half", test_loss=math.nan).worked


@pytest.mark.parametrize(
    ("mode", "record", "said"),
    [
        ("fp16-unscaled", {"test_loss": 0.0701, "accuracy": 0.1, "flushed": 0.48}, "answers with the average digit"),
        ("fp16-unscaled", {"test_loss": 0.05, "accuracy": 0.5, "flushed": 0.31}, "31% of the gradient elements"),
        ("half", {"losses": [0.3, 0.2, math.nan], "flushed": 0.3, "accuracy": 0.1}, "no number from step 3 on. Adam"),
        ("half", {"losses": [0.3, math.inf], "flushed": 0.0, "accuracy": 0.1}, "from step 2 on. It had 0%"),
        ("bf16-pure", {"losses": [0.3, math.nan], "flushed": 0.1, "accuracy": 0.1}, "It had 10%"),
        ("fp16-mixed", {"scales": [65536.0, 32768.0], "skipped": 1}, "32768 to 65536"),
        ("fp16-mixed", {"scales": [8.0, 8.0]}, "multiplied by 8 before backward"),
        ("bf16-mixed", {"test_loss": 0.019}, "5% below fp32's"),
        ("bf16-pure", {"test_loss": 0.05, "accuracy": 0.5}, "2.5 times fp32's"),
    ],
)
def test_the_sentence_follows_the_record(judged, verdicts, mode, record, said):
    """What is said changes with what was recorded: steps, shares, scales, losses; no outcome is taken for granted."""
    assert said in verdicts.sentence(judged(mode, **record))
