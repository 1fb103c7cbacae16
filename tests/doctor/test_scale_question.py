"""A scale that settles below 1 is asked about; one that has room, or a cause that is known, is not."""

from __future__ import annotations

import dataclasses

import pytest

from mixprec.doctor._arm import Arm, Examination, Intervention, OptimizerRecord, ScalerRecord, StepRecord, TracedOp
from mixprec.doctor._scale_question import scale_question
from mixprec.records import Location, OpRecord, TensorStats

FINITE = TensorStats("float32", (4,), 4, amax=1e7)
OP = OpRecord(
    op="aten.mul.Tensor",
    phase="backward",
    location=Location(file="train.py", line=8, module="net.4"),
    inputs=(TensorStats("float16", (4,), 4, amax=1e3),),
    outputs=(TensorStats("float16", (4,), 4, infs=4),),
    exact=(FINITE,),
)


def run(name, halvings, applied=10, **more):
    """An arm whose scale comes down from 1024 by skips and then stays."""
    steps = [
        StepRecord(0, n, n, scaler=0, loss=1.0, scale=1024.0 / 2**n, scale_after=512.0 / 2**n, skipped=True)
        for n in range(halvings)
    ]
    scale = 1024.0 / 2**halvings
    steps += [
        StepRecord(0, halvings + n, halvings + n, scaler=0, loss=1.0, scale=scale, scale_after=scale, grad_norm=1.0)
        for n in range(applied)
    ]
    return Arm(
        name,
        steps=tuple(steps),
        ended="stopped",
        optimizers=(OptimizerRecord(0, "SGD"),),
        scalers=(ScalerRecord(0, "GradScaler"),),
        **more,
    )


def known(halvings, op=OP):
    """An examination whose FP32 control is healthy."""
    return Examination(
        ("train.py",),
        (
            run("observe", halvings),
            run("fp32", 0, interventions=(Intervention("precision", "fp32"),)),
            run("locate", halvings, ops=(TracedOp("first_inf", op, 0),)),
        ),
    )


def test_a_scale_below_one_is_asked_about():
    """With the place and the scale, since float32 or bfloat16 there is what would decide."""
    asked = scale_question(known(20))

    assert asked is not None
    assert "line 8 (module net.4)" in asked
    assert f"{1024 / 2**20:.3g}" in asked


@pytest.mark.parametrize("halvings", [0, 3, 10])
def test_a_scale_with_room_is_not(halvings):
    """Down to 1 it found its place."""
    assert scale_question(known(halvings)) is None


def test_nor_is_a_fault_in_forward():
    """No scale is at fault there."""
    assert scale_question(known(20, dataclasses.replace(OP, phase="forward"))) is None


def test_nor_is_a_run_without_a_sound_control():
    """Where FP32 was not run, another experiment decides."""
    examination = known(20)
    arms = (examination.arms[0], examination.arms[2])

    assert scale_question(dataclasses.replace(examination, arms=arms)) is None
