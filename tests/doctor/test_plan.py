"""The state machine asks for an arm only where its answer could change the verdict, and then for the cheapest."""

from __future__ import annotations

import dataclasses

import pytest

from mixprec.doctor._arm import (
    Arm,
    ArmPlan,
    Crash,
    Event,
    Examination,
    Intervention,
    ModuleRecord,
    OptimizerRecord,
    RegionRecord,
    ScalerRecord,
    StepRecord,
    TracedOp,
)
from mixprec.doctor._plan import next_arm
from mixprec.records import Finding, Location, OpRecord, Severity, TensorStats

SITE = Location(file="train.py", line=9)
SCRIPT = Examination(("train.py",))
FP16 = RegionRecord(SITE, "cpu", "float16", True, entered=9, modules=9, low_ops=9)
ADAM = OptimizerRecord(0, "AdamW", SITE, lr=1e-3, parameter_dtypes={"float32": 10}, parameters=2, parameters_of_model=2)
SCALER = ScalerRecord(0, "GradScaler", SITE, init_scale=65536.0)


def steps(losses: list[float], **more: object) -> tuple[StepRecord, ...]:
    """A course of steps with these losses."""
    return tuple(StepRecord(0, n, n, loss=loss, batch=str(n), **more) for n, loss in enumerate(losses))  # type: ignore[arg-type] # fields by name


def arm(name: str = "observe", **more: object) -> Arm:
    """A run that computed in FP16 autocast."""
    given = {"regions": (FP16,), "optimizers": (ADAM,), "steps": steps([3.0, 2.0, 1.0]), **more}
    return Arm(name, **given)  # type: ignore[arg-type] # fields by name


def asked(examination: Examination) -> list[str]:
    """The arms that are asked for one after another, each answered by a healthy run."""
    names = []
    while (plan := next_arm(examination)) is not None:
        names.append(plan.name)
        examination = examination.with_arm(arm(plan.name, interventions=plan.interventions))
    return names


def test_the_first_arm_changes_nothing() -> None:
    """Before anything is known the script is observed as it is, for as many steps as are wanted."""
    assert next_arm(SCRIPT) == ArmPlan("observe", steps=200)


def test_a_healthy_fp32_script_is_traced_once_and_left_alone() -> None:
    """Where nothing computes in 16 bits there is nothing to control: only the op trace is asked for."""
    assert asked(SCRIPT.with_arm(arm(regions=()))) == ["locate"]


def test_a_healthy_fp16_script_gets_an_fp32_control() -> None:
    """A clean bill rests on a control in FP32 and on a trace of ops, and on nothing else."""
    assert asked(SCRIPT.with_arm(arm())) == ["fp32", "locate"]


def test_the_end_of_an_epoch_is_traced() -> None:
    """The first evaluation, the iteration before it, one near the start and the last one."""
    evaluated = Event("forward_begin", 0, iteration=30, data={"grad": False})
    plan = next_arm(SCRIPT.with_arm(arm(regions=(), events=(evaluated,), steps=steps([1.0] * 80))))
    assert plan is not None
    assert plan.trace == {"iterations": [2, 29, 30, 79]}


def test_the_control_reaches_what_the_script_converts_by_hand() -> None:
    """FP16 weights that the script made itself are beyond autocast: the control exchanges the dtype as well."""
    half = dataclasses.replace(ADAM, parameter_dtypes={"float16": 10})
    plan = next_arm(SCRIPT.with_arm(arm(regions=(), optimizers=(half,))))
    assert plan is not None
    assert plan.interventions == (Intervention("explicit", "fp32"),)


def test_a_loss_that_is_not_finite_is_traced_where_it_first_was() -> None:
    """The iteration to trace is the first whose loss is not finite; the FP32 control goes on a little beyond it."""
    failing = arm(steps=steps([3.0] * 50 + [float("nan")] + [3.0] * 100))
    plans = {}
    examination = SCRIPT.with_arm(failing)
    while (plan := next_arm(examination)) is not None and len(plans) < 9:
        plans[plan.name] = plan
        examination = examination.with_arm(arm(plan.name, steps=failing.steps, interventions=plan.interventions))
    assert plans["locate"].trace == {"iterations": [50]}
    assert plans["fp32"].steps == 71


def test_a_run_that_differs_from_its_trace_is_repeated() -> None:
    """If the arm that locates had other losses than the observed one for the same batches, the run is repeated."""
    examination = SCRIPT.with_arm(arm(steps=steps([3.0, float("nan")])))
    examination = examination.with_arm(arm("fp32", interventions=(Intervention("precision", "fp32"),)))
    examination = examination.with_arm(arm("locate", steps=steps([3.0, 2.0]), ops=()))
    plan = next_arm(examination)
    assert plan is not None
    assert plan.name == "repeat"


def test_an_exception_that_explains_itself_needs_no_control() -> None:
    """FP16 gradients that cannot be unscaled are certain from the exception: nothing more is run."""
    crash = Crash("ValueError", "Attempting to unscale FP16 gradients.", (SITE,))
    assert next_arm(SCRIPT.with_arm(arm(crash=crash, ended="crashed"))) is None


def test_an_exception_of_dtypes_is_tried_in_fp32() -> None:
    """A dtype mismatch is confirmed by the FP32 control, which needs to go no further than the place that raised."""
    crash = Crash(
        "RuntimeError", "index_add_(): self (Float) and source (Half) must have the same scalar type", (SITE,)
    )
    plan = next_arm(SCRIPT.with_arm(arm(crash=crash, ended="crashed", steps=())))
    assert plan is not None
    assert (plan.name, plan.steps) == ("fp32", 3)


def test_an_exception_that_nobody_explains_is_traced() -> None:
    """An error of the script's own may be the consequence of NaN: the ops before it are looked at."""
    crash = Crash("RuntimeError", "loss scale cannot be reduced further", (SITE,), iteration=7)
    assert asked(SCRIPT.with_arm(arm(crash=crash, ended="crashed"))) == ["fp32", "locate"]


def test_a_fault_of_protocol_in_run_and_text_needs_no_control() -> None:
    """Clipping before unscale_, heard in the run and read in the script, is certain: no arm would change it."""
    clip = Event("clip", 0, optimizer=0, site=SITE, data={"state": "scaled", "limit": 1.0, "norm": 4e4})
    seen = SCRIPT.with_arm(arm(events=(clip,), scalers=(SCALER,)))
    assert next_arm(seen) is not None
    finding = Finding("MP002", "clip-before-unscale", Severity.ERROR, "", SITE)
    assert next_arm(dataclasses.replace(seen, lint=(finding,))) is None


def test_no_arm_begins_that_cannot_end() -> None:
    """With less time left than the observed run took, the examination ends with what is known."""
    examination = dataclasses.replace(SCRIPT.with_arm(arm(seconds=30.0)), seconds_left=31.0)
    assert next_arm(examination) is None


def test_divergence_is_tried_with_a_smaller_learning_rate() -> None:
    """A loss that grows a thousandfold in FP32 too asks for a tenth of the learning rate."""
    wild = steps([1.0, 50.0, 9000.0, 1e9])
    examination = SCRIPT.with_arm(arm(steps=wild, regions=()))
    names = []
    while (plan := next_arm(examination)) is not None and len(names) < 9:
        names.append(plan.name)
        examination = examination.with_arm(arm(plan.name, steps=wild, interventions=plan.interventions))
    assert "learning-rate" in names


@pytest.mark.parametrize("name", ["fp32", "locate"])
def test_no_arm_is_asked_for_twice(name: str) -> None:
    """An arm that was run is never asked for again, whatever it showed."""
    examination = SCRIPT.with_arm(arm())
    for other in ("fp32", "locate"):
        examination = examination.with_arm(arm(other, ended="timed_out", steps=()))
    plan = next_arm(examination)
    assert plan is None or plan.name != name


def test_a_compiled_script_is_run_in_eager_mode() -> None:
    """Where torch.compile was called, the eager arm separates what compilation changed."""
    assert "eager" in asked(SCRIPT.with_arm(arm(facts={"compile_site": {"file": "train.py", "line": 3}})))


def test_a_first_skip_of_fused_momentum_is_tried_unfused() -> None:
    """Fused SGD whose first step was skipped and whose loss breaks later is run unfused."""
    sgd = dataclasses.replace(ADAM, kind="SGD", fused=True, momentum=0.9)
    first = StepRecord(0, 0, 0, scaler=0, loss=1.0, scale=65536.0, skipped=True, batch="0")
    rest = tuple(StepRecord(0, n, n, scaler=0, loss=float("nan"), scale=32768.0, batch=str(n)) for n in (1, 2))
    assert "unfused" in asked(SCRIPT.with_arm(arm(optimizers=(sgd,), steps=(first, *rest), scalers=(SCALER,))))


def test_ops_that_explain_a_failure_end_the_search() -> None:
    """Once the op is located and the FP32 control is healthy, neither bfloat16 nor scale 1 would change the cause."""
    hot = TensorStats("float16", (4, 4), 16, amax=300.0)
    out = TensorStats("float16", (4, 4), 16, infs=16)
    exact = TensorStats("float32", (4, 4), 16, amax=9e4)
    op = OpRecord("aten.pow.Tensor_Scalar", "forward", SITE, (hot,), (out,), exact=(exact,))
    failing = steps([float("nan")] * 3)
    examination = SCRIPT.with_arm(arm(steps=failing, modules=(ModuleRecord("", "Net", 3),)))
    examination = examination.with_arm(arm("fp32", interventions=(Intervention("precision", "fp32"),)))
    examination = examination.with_arm(arm("locate", steps=failing, ops=(TracedOp("first_inf", op),)))
    assert next_arm(examination) is None
