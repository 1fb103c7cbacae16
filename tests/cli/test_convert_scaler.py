"""`mixprec convert-scaler` moves a saved loss scale, says what is lost on the way, and refuses what it cannot read."""

from __future__ import annotations

import json

import pytest
import torch

STATE = {
    "scale": 4096.0,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 2000,
    "_growth_tracker": 7,
}


@pytest.fixture
def saved(tmp_path):
    """A JSON file with a torch scaler's state."""
    path = tmp_path / "scaler.json"
    path.write_text(json.dumps(STATE), encoding="utf-8")
    return path


def test_there_and_back_is_the_same_state(mixprec, saved, tmp_path):
    """torch to mixprec to torch, through files, gives back every entry, and the second way loses nothing."""
    own, back = tmp_path / "own.json", tmp_path / "back.json"

    assert mixprec("convert-scaler", str(saved), str(own), "--to", "mixprec").code == 0
    answer = mixprec("convert-scaler", str(own), str(back), "--to", "torch", "--format", "json")

    assert json.loads(back.read_text(encoding="utf-8")) == STATE == answer.json["mapping"]
    assert answer.json["losses"] == []
    assert answer.json["origin"] == "mixprec"


def test_losses_are_listed_with_how_to_set_them(mixprec, saved):
    """Megatron keeps interval and bounds elsewhere: each is named, with both values and the option that sets it."""
    answer = mixprec("convert-scaler", str(saved), "--to", "megatron", "--format", "json").json

    assert answer["mapping"] == {"scale": 4096.0, "growth_tracker": 7, "hysteresis_tracker": 1}
    losses = {loss["what"]: loss for loss in answer["losses"]}
    assert losses["growth_interval"] == {
        "what": "growth_interval",
        "here": 2000,
        "there": 1000,
        "remedy": "--loss-scale-window",
    }
    shown = mixprec("convert-scaler", str(saved), "--to", "megatron").out
    assert "Not taken over by megatron:" in shown
    assert "--loss-scale-window" in shown


def test_without_a_target_nothing_is_written(mixprec, saved, tmp_path):
    """A conversion that is only shown leaves the folder as it was."""
    mixprec("convert-scaler", str(saved), "--to", "apex")

    assert [path.name for path in tmp_path.iterdir()] == ["scaler.json"]


def test_the_state_is_found_inside_a_checkpoint(mixprec, tmp_path):
    """In a torch checkpoint the one scaler among other entries is found, and --key names it as well."""
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": {"weight": torch.ones(2)}, "training": {"scaler": STATE}}, path)

    found = mixprec("convert-scaler", str(path), "--to", "torch", "--format", "json").json
    named = mixprec("convert-scaler", str(path), "--to", "torch", "--key", "training.scaler", "--format", "json").json

    assert found["key"] == named["key"] == "training.scaler"
    assert found["mapping"] == named["mapping"] == STATE


def test_what_megatron_loads_is_a_tensor_of_one_element(mixprec, saved, tmp_path):
    """A checkpoint written for Megatron has its scale as a float32 tensor of shape (1,)."""
    target = tmp_path / "megatron.pt"
    mixprec("convert-scaler", str(saved), str(target), "--to", "megatron")

    loaded = torch.load(target, weights_only=True)
    assert torch.equal(loaded["scale"], torch.tensor([4096.0]))
    assert loaded["growth_tracker"] == 7


def test_two_scalers_ask_for_a_choice(mixprec, tmp_path):
    """Where two states are found, both places are named; with --key the chosen one is read."""
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"a": STATE, "b": {**STATE, "scale": 2.0}}), encoding="utf-8")

    refused = mixprec("convert-scaler", str(path), "--to", "torch")
    chosen = mixprec("convert-scaler", str(path), "--to", "torch", "--key", "b", "--format", "json")

    assert refused.code == 2
    assert refused.err == "mixprec: error: There is a loss scale at 'a', 'b': choose one with --key.\n"
    assert chosen.json["mapping"]["scale"] == 2.0


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("{}", (), "is empty, as a disabled scaler saves it"),
        ('{"weight": 1}', (), "The keys 'weight' are no known layout's"),
        ("[1]", (), "holds a list; accepted is a mapping"),
        ("{", (), "is no JSON"),
        ('{"a": {}}', ("--key", "b"), "there is no 'b'; there is 'a'"),
        ('{"a": 1}', ("--key", "a"), "a int is there; accepted is a mapping"),
        (json.dumps({**STATE, "scale": 0.0}), (), "from which no system recovers"),
        (json.dumps({k: v for k, v in STATE.items() if k != "growth_factor"}), (), "no 'growth_factor'"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_its_reason(mixprec, tmp_path, content, options, said):
    """Damaged or foreign files end with exit code 2 and the reason; the file itself is named by its entries."""
    path = tmp_path / "file.json"
    path.write_text(content, encoding="utf-8")

    answer = mixprec("convert-scaler", str(path), "--to", "torch", *options)

    assert answer.code == 2
    assert said in answer.err


def test_a_file_that_is_no_checkpoint_is_refused(mixprec, tmp_path):
    """A text file that is called .pt gets one sentence, and no advice to load it unsafely."""
    path = tmp_path / "file.pt"
    path.write_text("no checkpoint", encoding="utf-8")

    answer = mixprec("convert-scaler", str(path), "--to", "torch")

    assert answer.code == 2
    assert "torch.load(weights_only=True) cannot read" in answer.err
    assert "weights_only` set to `False" not in answer.err
