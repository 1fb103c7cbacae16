"""`mixprec convert` writes 16-bit weights, leaves in float32 what would not survive, and says which and why."""

from __future__ import annotations

import pytest
import torch

WEIGHTS = {"a.weight": torch.linspace(-1, 1, 64), "a.steps": torch.tensor(3), "b.weight": torch.tensor([1.0, 1e6])}


@pytest.fixture
def checkpoint(tmp_path):
    """A training checkpoint with one tensor that overflows."""
    torch.save({"model": WEIGHTS, "epoch": 3, "optimizer": {"state": {}}}, tmp_path / "last.pt")
    return tmp_path / "last.pt"


def test_it_casts_and_names_what_stays(mixprec, checkpoint):
    """The file has fp16 for what survives and float32 for what overflows; the exit code says that something stayed."""
    target = checkpoint.with_name("small.pt")
    answer = mixprec("convert", str(checkpoint), str(target))
    assert answer.code == 1
    assert "1 of 3 tensors cast" in answer.out
    assert "b.weight  1 of 2 values overflow float16" in answer.out
    written = torch.load(target, weights_only=True)
    assert torch.equal(written["a.weight"], WEIGHTS["a.weight"].half())
    assert written["b.weight"].dtype is torch.float32
    assert torch.equal(written["a.steps"], WEIGHTS["a.steps"])


def test_bf16_takes_all_and_ends_with_0(mixprec, checkpoint):
    """1e6 is in the range of bf16; without a target nothing is written."""
    answer = mixprec("convert", str(checkpoint), "--to", "bf16", "--format", "json")
    assert answer.code == 0
    assert answer.json["kept"] == []
    assert (answer.json["key"], answer.json["cast"], answer.json["target"]) == ("model", 2, None)
    assert answer.json["bytes_after"] < answer.json["bytes_before"]
    assert [p.name for p in checkpoint.parent.iterdir()] == ["last.pt"]


def test_json_names_what_is_lost(mixprec, checkpoint):
    """The entry has the name, the reason and the counts."""
    (kept,) = mixprec("convert", str(checkpoint), "--format", "json").json["kept"]
    assert kept["name"] == "b.weight"
    assert kept["survival"]["overflowed"] == 1
    assert kept["survival"]["amax"] == 1e6


def test_keep_leaves_tensors_as_they_are(mixprec, checkpoint):
    """A glob that covers the one that overflows: nothing is lost any more."""
    assert mixprec("convert", str(checkpoint), "--keep", "b.*").code == 0


def test_safetensors_in_and_out(mixprec, tmp_path):
    """The format follows the file's suffix."""
    safe = pytest.importorskip("safetensors.torch", reason="extra: convert")
    safe.save_file({"w": torch.ones(4)}, tmp_path / "in.safetensors")
    assert mixprec("convert", str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")).code == 0
    assert safe.load_file(tmp_path / "out.safetensors")["w"].dtype is torch.float16


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 3}, "There are 0 sets of weights in the file: accepted is a mapping of names to tensors."),
        ({"g": {"w": torch.ones(1)}, "d": {"w": torch.ones(1)}}, "choose one of 'g', 'd' with --key"),
    ],
)
def test_where_the_weights_are_has_to_be_clear(mixprec, tmp_path, content, message):
    """None or several sets of weights: exit code 2; --key chooses."""
    torch.save(content, tmp_path / "odd.pt")
    answer = mixprec("convert", str(tmp_path / "odd.pt"))
    assert answer.code == 2
    assert message in answer.err
    if "g" in content:
        assert mixprec("convert", str(tmp_path / "odd.pt"), "--key", "g").code == 0
