"""What is read back is what was kept, to six digits, and loss scales to the last."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Crash, Examination, Intervention, ModuleRecord, StepRecord, TracedOp
from mixprec.doctor._kept import keep, kept
from mixprec.records import Location, OpRecord, TensorStats


def step(**more):
    """A step whose numbers have few digits."""
    return StepRecord(0, 0, 0, **{"loss": 0.25, "scale": 65536.0, **more})


OP = OpRecord("aten.mul.Tensor", "forward", Location(file="train.py", line=3), (TensorStats("float16", (), 1),))
KNOWN = Examination(
    ("train.py",),
    (
        Arm(
            "observe", steps=(step(), step(loss=math.inf, finished=False, batch="ab")), ops=(TracedOp("first_inf", OP),)
        ),
        Arm("fp32", (Intervention("precision", "fp32"),), ended="crashed", crash=Crash("E", "why", in_backward=True)),
        Arm("other", modules=(ModuleRecord("net.0", "Linear", output_amax=math.inf),), facts={"compiled": False}),
    ),
    wanted_steps=20,
)


def test_everything_comes_back(tmp_path):
    """Defaults too, which are not written, and numbers that are not finite."""
    keep(KNOWN, tmp_path / "kept.jsonl.xz")

    assert kept(tmp_path / "kept.jsonl.xz") == KNOWN


def test_numbers_have_six_digits_and_scales_all(tmp_path):
    """Whole numbers and powers of two are exact, however large or small; texts can be taken out."""
    fine = Arm("observe", steps=(step(loss=1 / 3, scale=2.0**-40, scale_after=2.0**23, lr=1e-3),))
    known = Examination(("/home/me/train.py",), (fine,))

    keep(known, tmp_path / "kept.jsonl.xz", without=["/home/me/"])

    read = kept(tmp_path / "kept.jsonl.xz")
    (again,) = read.arms[0].steps
    assert (again.loss, again.scale, again.scale_after, again.lr) == (0.333333, 2.0**-40, 2.0**23, 1e-3)
    assert read.command == ("train.py",)
