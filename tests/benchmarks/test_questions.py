"""Every question is answered in the JSON that the page documents, and its contenders do the same work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import gpt_step, optimizer_phase, page, peers
from benchmarks.harness import Bench

ROOT = Path(__file__).parents[2]


def flat(weights):
    return torch.cat([weight.detach().reshape(-1) for weight in weights])


def shape(value):
    """The keys of nested objects; a list has the shape of its first member."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


def test_the_command_writes_what_the_page_documents(tiny, tmp_path, monkeypatch, capsys):
    """The file has the keys of the example on the page, and in every table every column is in some row."""
    monkeypatch.setattr(command, "QUICK_SHARE", 0.0)
    out = tmp_path / "bench.json"

    command.main(["--quick", "--out", str(out)])

    found = json.loads(out.read_text(encoding="utf-8"))
    documented = json.loads(re.search(r"```json\n(.*?)```", page.PAGE.read_text(encoding="utf-8"), re.DOTALL)[1])
    for table in (*found["tables"], *documented["tables"]):
        rows = table.pop("rows")  # their keys are the tables' own
        for column in table["columns"]:
            assert any(column["key"] in row for row in rows), (table["name"], column)
    assert shape(found) == shape(documented)
    printed = capsys.readouterr().out
    assert all(table["title"][:20] in printed for table in found["tables"])


@pytest.mark.parametrize("max_norm", [optimizer_phase.MAX_NORM, None])
def test_contenders_take_the_same_step(tiny, max_norm):
    """From equal weights and gradients, every contender of the optimizer phase reaches the same weights."""
    reached = []
    for entry in optimizer_phase.float32_entries(tiny, "cpu", max_norm):
        before = flat(entry.weights)
        entry.contender.prepare()
        entry.contender.call()
        reached.append(flat(entry.weights))
        assert not torch.equal(reached[-1], before)

    assert len(reached) >= 6
    for weights in reached[1:]:
        torch.testing.assert_close(weights, reached[0], rtol=1e-6, atol=1e-7)


def test_masters_take_the_same_step(tiny):
    """Masters by hand and `Precision` reach the same float16 weights."""
    reached = []
    for entry in (optimizer_phase.masters_by_hand(tiny, "cpu"), optimizer_phase.our_masters(tiny, "cpu")):
        before = flat(entry.weights)
        entry.contender.prepare()
        entry.contender.call()
        reached.append(flat(entry.weights))
        assert not torch.equal(reached[-1], before)

    assert reached[0].dtype is torch.float16
    torch.testing.assert_close(*reached, rtol=1e-3, atol=0.0)


def test_peers_that_are_installed_take_part(tiny):
    """Each installed peer has a row in the phase with and without clipping."""
    for max_norm in (1.0, None):
        entries = optimizer_phase.float32_entries(tiny, "cpu", max_norm)
        assert set(peers.INSTALLED) <= {entry.contender.name.partition(",")[0] for entry in entries}


def test_models_begin_alike(tiny):
    """The first loss of every float32 or bfloat16 training is that of the same weights on the same batch."""
    losses = {name: gpt_step.Training(name, "cpu").forward().item() for name in (gpt_step.PEER, *gpt_step.POLICIES)}

    assert max(losses.values()) - min(losses.values()) < 1e-2
    assert losses["mixprec, torch"] == losses[gpt_step.PEER]


def test_cuda_is_refused_where_there_is_none(capsys, monkeypatch):
    """`--device cuda` without CUDA ends with a sentence and exit code 2; the CPU is accepted."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(SystemExit) as refusal:
        command.arguments(["--device", "cuda"])
    assert refusal.value.code == 2
    assert "needs a CUDA device" in capsys.readouterr().err
    assert command.arguments(["--device", "cpu"]).device == "cpu"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_every_question_on_cuda(tiny):
    """On a CUDA device every question is answered too."""
    for run in command.QUESTIONS.values():
        assert run(Bench("cuda", share=0.0), 1e9).tables
