"""What a run streamed to disk comes back as the records that were written, also when the run was killed."""

from __future__ import annotations

import math

from mixprec.doctor._arm import (
    Arm,
    Crash,
    Event,
    ModuleRecord,
    OptimizerRecord,
    StepRecord,
    TracedOp,
    read_arm,
    write_record,
)
from mixprec.records import Location, OpRecord, TensorStats

SITE = Location(file="train.py", line=7)
OP = OpRecord(
    op="aten.div.Tensor",
    phase="backward",
    location=SITE,
    inputs=(TensorStats(dtype="float16", shape=(2, 3), numel=6, amax=1.5),),
    scalars=(("eps", 1e-8), ("other", None)),
    sources=(None, 3),
)
RECORDS = (
    OptimizerRecord(0, "AdamW", SITE, betas=(0.9, 0.999), parameter_dtypes={"float32": 10}),
    StepRecord(0, 0, 0, loss=math.nan, grad_norm=math.inf, loss_shape=(2,)),
    Event("unscale", 3, optimizer=0, site=SITE, data={"by_step": True}),
    ModuleRecord("layers.0", "Linear", amax_by_iteration=(1.0, -math.inf)),
    TracedOp("first_inf", OP, source="x / y", constants=(1e-8,)),
)


def test_records_come_back_as_they_were_written() -> None:
    """Every kind of record, with infinities, NaN, nested locations, ops and statistics, survives a line of JSON."""
    arm = read_arm(Arm("observe"), [write_record(record) for record in RECORDS])
    assert (arm.optimizers, arm.events, arm.modules, arm.ops) == tuple(
        (record,) for record in RECORDS if record is not RECORDS[1]
    )
    (step,) = arm.steps
    assert math.isnan(step.loss or 0)
    assert (step.grad_norm, step.loss_shape) == (math.inf, (2,))


def test_lines_are_json_that_any_reader_takes() -> None:
    """No line holds a bare NaN or Infinity."""
    assert not any(
        word in write_record(record) for record in RECORDS for word in (": NaN", ": Infinity", ": -Infinity")
    )


def test_a_torn_last_line_is_passed_over() -> None:
    """A run killed while it wrote leaves everything before."""
    lines = [write_record(RECORDS[1]), write_record(RECORDS[1])[:40]]
    assert len(read_arm(Arm("observe"), lines).steps) == 1


def test_the_last_record_of_a_thing_counts_and_the_first_crash() -> None:
    """An optimizer is described anew as it goes; the first exception is the cause, what follows it is not."""
    lines = [
        write_record(OptimizerRecord(0, "SGD", lr=1.0)),
        write_record(OptimizerRecord(1, "Adam")),
        write_record(OptimizerRecord(0, "SGD", lr=0.5)),
        write_record(Crash("RuntimeError", "first")),
        write_record(Crash("ValueError", "second")),
        '{"record": "fact", "name": "torch", "value": "2.13.0"}\n',
        '{"record": "uncontrolled", "what": "half"}\n',
        '{"record": "uncontrolled", "what": "half"}\n',
        '{"record": "of a newer schema", "what": 1}\n',
    ]
    arm = read_arm(Arm("observe"), lines)
    assert [(item.kind, item.lr) for item in arm.optimizers] == [("SGD", 0.5), ("Adam", None)]
    assert arm.crash is not None
    assert arm.crash.message == "first"
    assert arm.facts == {"torch": "2.13.0"}
    assert arm.uncontrolled == ("half",)
