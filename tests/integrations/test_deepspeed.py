"""What DeepSpeed decides is read as it is, its loss scale moves in and out, and a second decider is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="extra: deepspeed")

import torch

from mixprec.monitor import read_run

pytestmark = [pytest.mark.integrations, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "deepspeed_program.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What one process found: DeepSpeed keeps global state and its own process group."""
    folder = tmp_path_factory.mktemp("deepspeed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), str(folder)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder, torch.load(folder / "found.pt", weights_only=True)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_reports_say_what_the_engine_did(found, stage):
    """In windows of two: applied, skipped (parameters stay), applied, applied; the scale halves on the skip."""
    steps = found[1][f"fp16 {stage}"]["steps"]
    assert [s["reason"] for s in steps] == [
        *("accumulating", "applied"),
        *("accumulating", "found_inf"),
        *("accumulating", "applied"),
        *("accumulating", "applied"),
    ]
    ends = steps[1::2]
    assert [s["moved"] for s in ends] == [True, False, True, True]
    assert [(s["before"], s["after"]) for s in ends] == [(256.0, 256.0), (256.0, 128.0), (128.0, 128.0), (128.0, 128.0)]
    assert [s["step"] for s in ends] == [0, 1, 2, 3]
    assert all(s["norm"] > 0 for s in (ends[0], *ends[2:]))
    assert [s["skips"] for s in ends] == [0, 1, 1, 1]


def test_every_step_is_in_the_runs_folder_once(found):
    """The monitor's reader reads it: four steps, one skipped, with their scales."""
    steps = read_run(found[0] / "fp16 1").steps
    assert [(s.step, s.reason, s.scale) for s in steps] == [
        (0, "applied", 256.0),
        (1, "found_inf", 256.0),
        (2, "applied", 128.0),
        (3, "applied", 128.0),
    ]


@pytest.mark.parametrize("stage", [0, 1])
def test_the_scale_moves_out_and_in(found, stage):
    """A scaler goes on where the engine stands, and the engine where another scaler stood; both in the same rules."""
    case = found[1][f"fp16 {stage}"]
    assert case["exported"] == {"scale": 128.0, "interval": 2, "clean": 1}
    assert case["imported"] == 64.0


def test_the_scaler_of_torch_autocast_is_ours_after_use_mixprec(found):
    """DeepSpeed counts its skip as applied; the report says that it was skipped, and the parameters did not move."""
    ends = found[1]["autocast 0"]["steps"][1::2]
    assert [s["reason"] for s in ends] == ["applied", "found_inf", "applied", "applied"]
    assert [s["moved"] for s in ends] == [True, False, True, True]
    assert [s["engine says applied"] for s in ends] == [True, True, True, True]


def test_fp16_without_a_loss_scale_is_warned_of(found):
    """torch_autocast in fp16 with ZeRO 1 scales no loss; the other engines are not warned of."""
    assert "MP001" in found[1]["autocast 1"]["warned"]
    assert found[1]["autocast 0"]["warned"] == found[1]["fp16 1"]["warned"] == ""


def test_a_second_decider_is_refused(found):
    """With the section of the configuration that decides; an engine that trains in float32 takes one."""
    assert "DeepSpeed's configuration enables 'fp16'" in found[1]["fp16 1"]["refused"]
    assert "'bf16'" in found[1]["bf16 1"]["refused"]
    assert found[1]["fp32 0"]["refused"] == ""
