"""The script that a GPU is to run goes through on a CPU, small, so that only the device is missing."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks import audit_on_cuda


def test_forecast_and_measurement_of_both_models_are_written(tmp_path, capsys):
    """Peak, forecast and time of every mode, the bound beside the measured gain, the device and the date."""
    file = tmp_path / "result.json"
    audit_on_cuda.main(["--device", "cpu", "--small", "--steps", "1", "--output", str(file)])
    document = json.loads(file.read_text(encoding="utf-8"))

    assert {"device", "torch", "date"} < document.keys()
    assert set(document["tasks"]) == {"transformer", "convnet"}
    for task in document["tasks"].values():
        assert set(task["modes"]) == {*audit_on_cuda.MODES, *audit_on_cuda.LOWBIT}
        assert all(abs(mode["error"]) < 0.05 and mode["seconds"] > 0 for mode in task["modes"].values())
        assert task["bound"]["measured"] > 0
    assert "forecast +0.0%" in capsys.readouterr().out


def test_the_models_are_the_stand_ins_they_are_named_after():
    """GPT-2 small without position embeddings and with its own head; ResNet-50 to the parameter."""
    with torch.device("meta"):
        transformer, convnet = audit_on_cuda.Transformer(), audit_on_cuda.convnet(small=False)

    assert sum(p.numel() for p in transformer.parameters()) == 2 * 50304 * 768 + 12 * 7087872 + 2 * 768
    assert sum(p.numel() for p in convnet.parameters()) == 25_557_032
    assert Path(audit_on_cuda.KEPT).parent.is_dir()
