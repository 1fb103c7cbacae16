"""What no recording of this machine shows, and look-alikes told apart: judges asked about records written by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest

from mixprec.doctor._arm import (
    Arm,
    Crash,
    Event,
    Examination,
    Intervention,
    OptimizerRecord,
    RegionRecord,
    ScalerRecord,
    StepRecord,
    TracedOp,
)
from mixprec.doctor._plan import next_arm
from mixprec.doctor._verdict import open_question, verdicts
from mixprec.doctor.judges import (
    bad_data,
    cached_without_graph,
    nan_hidden,
    ranks_disagree,
    reduce_in_half,
    uninitialised,
    weights_not_taken,
)
from mixprec.doctor.judges.divergence import diverges
from mixprec.records import Finding, Location, OpRecord, Severity, TensorStats

SITE = Location(file="train.py", line=9)
OTHER = Location(file="train.py", line=20)
SCALER = ScalerRecord(0, "GradScaler", SITE, init_scale=65536.0)
ADAM = OptimizerRecord(0, "Adam", SITE, parameter_dtypes={"float32": 9}, parameters=2, parameters_of_model=2)
FP16 = RegionRecord(SITE, "cpu", "float16", True, entered=3, modules=3, low_ops=3)
BATCH = StepRecord(0, 0, 0, batch="a", loss=1.0)


def examined(**observed: object) -> Examination:
    """An examination of which only the observing arm is known."""
    return Examination(("train.py",), (Arm("observe", **observed),))  # type: ignore[arg-type] # fields by name


def crashed(message: str, kind: str = "RuntimeError", **more: object) -> Examination:
    """The script raised `message` on line 9."""
    given = {"frames": (SITE,), **{key: more.pop(key) for key in ("in_region", "in_backward") if key in more}}
    return examined(crash=Crash(kind, message, **given), ended="crashed", **more)  # type: ignore[arg-type] # fields by name


def protocol(*kinds: str, **data: object) -> tuple[Event, ...]:
    """Calls in order, each on a line of its own; `unscale` is the script's."""
    return tuple(
        Event(kind, n, scaler=0, optimizer=0, site=Location(file="train.py", line=n), data={"enabled": True, **data})
        for n, kind in enumerate(kinds)
    )


def codes(examination: Examination) -> list[str]:
    """The codes of all verdicts, first the cause to repair."""
    return [verdict.code for verdict in verdicts(examination)]


RAISED = [
    ("value cannot be converted to type c10::Half without overflow", "MP041"),
    ("\"lu_factor_cpu\" not implemented for 'Half'", "MP053"),
    ("linalg.inv: Low precision dtypes not supported. Got BFloat16", "MP053"),
    ("Unsupported dtype Half for linalg", "MP053"),
    ("MKL FFT doesn't support tensors of type: Half", "MP053"),
    ("\"histogram_cpu\" not implemented for 'BFloat16'", "MP164"),
    ("could not create a primitive descriptor for the LSTM forward propagation primitive.", "MP164"),
    ("Got unsupported ScalarType BFloat16", "MP172"),
    ("expected dtype float for `end` but got dtype c10::Half", "MP163"),
    ("Attempting to unscale FP16 gradients.", "MP084"),
    ("Closure use is not currently supported if GradScaler is enabled.", "MP024"),
    ("element 0 of tensors does not require grad and does not have a grad_fn", "MP144"),
    ("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.", "MP017"),
    ("aten._to_copy.default encountered during backward but not found in storage", "MP165"),
    ("Recomputed values for the following tensors have different metadata: saved {'dtype': torch.float16}", "MP089"),
]


@pytest.mark.parametrize(("message", "code"), RAISED, ids=[code + "-" + message[:20] for message, code in RAISED])
def test_messages_that_name_their_cause(message: str, code: str) -> None:
    """What PyTorch 2.13 raises for a cause is that cause's verdict, alone, at the user's line."""
    found = verdicts(crashed(message))
    assert [verdict.code for verdict in found] == [code]
    assert found[0].location == SITE


MIXED = [
    ("Index put requires the source and destination dtypes match, got Float for the destination and Half for the "
     "source.", "float16", False, "MP162"),
    ("scatter(): Expected self.dtype to be equal to src.dtype, got Float and Half", "float16", False, "MP162"),
    ("expected m1 and m2 to have the same dtype, but got: c10::Half != float", None, True, "MP082"),
    ("mat1 and mat2 must have the same dtype, but got Float and Half", None, False, "MP163"),
    ("Input type (float) and bias type (c10::Half) should be the same", None, False, "MP163"),
    ("mixed dtype (CPU): expect parameter to have scalar type of Float, not Half", None, False, "MP163"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "region", "backward", "code"), MIXED, ids=[row[3] + row[0][:9] for row in MIXED])
def test_where_dtypes_met_says_why(message: str, region: str | None, backward: bool, code: str) -> None:
    """A dtype mismatch is another cause in an indexed write, in a backward of the user's, and at a half model."""
    assert codes(crashed(message, in_region=region, in_backward=backward)) == [code]


def test_an_error_of_the_scripts_own_is_no_cause() -> None:
    """A KeyError is nobody's mixed precision."""
    assert codes(crashed("'labels'", "KeyError")) == []


AGAIN = "unscale_() has already been called on this optimizer since the last update()."


def test_unscaled_twice_in_one_window() -> None:
    """Without gradients cleared between, it is one window that is unscaled at every micro-batch."""
    events = protocol("backward", "unscale", "backward", "unscale", of_scale=True)
    assert codes(crashed(AGAIN, events=events)) == ["MP007"]


def test_unscaled_twice_because_an_iteration_left_early() -> None:
    """With gradients cleared and a backward between, the step and update of the iteration before were left out."""
    first = ("backward", "unscale", "scaler_step", "update")
    events = protocol(*first, "zero_grad", "backward", "unscale", "zero_grad", "backward", "unscale")
    same = Location(file="train.py", line=90)
    events = tuple(dataclasses.replace(e, site=same) if e.kind == "backward" else e for e in events)
    found = verdicts(crashed(AGAIN, events=events, steps=(BATCH,)))[0]
    assert (found.code, found.location.line) == ("MP142", 2)


def test_unscaled_twice_in_two_half_steps() -> None:
    """Weights that the script moved between the two are SAM's; two backward lines without that are one window."""
    kinds = ("backward", "unscale", "weights_moved", "zero_grad", "backward", "unscale")
    assert codes(crashed(AGAIN, events=protocol(*kinds)))[0] == "MP025"
    assert codes(crashed(AGAIN, events=protocol(*kinds[:2], *kinds[3:])))[0] == "MP007"


def test_unscaled_twice_because_nobody_updates() -> None:
    """With a direct step between and no update in the whole run, it is update() that is missing."""
    events = protocol("zero_grad", "backward", "unscale", "step", "zero_grad", "backward", "unscale")
    assert codes(crashed(AGAIN, events=events))[0] == "MP005"


NO_CHECKS = "No inf checks were recorded for this optimizer."


@pytest.mark.parametrize(
    ("optimizers", "code"),
    [
        ((dataclasses.replace(ADAM, parameters_with_grad_ever=2),), "MP143"),
        ((ADAM, dataclasses.replace(ADAM, optimizer=1, parameters_with_grad_ever=2)), "MP143"),
        ((ADAM,), "MP144"),
        ((dataclasses.replace(ADAM, parameters_of_model=0),), "MP145"),
    ],
    ids=["had one before", "another has one", "nobody has one", "belongs to no model"],
)
def test_one_message_three_causes(optimizers: tuple[OptimizerRecord, ...], code: str) -> None:
    """`No inf checks` is a step without gradients, a loss cut from the graph, or an optimizer of other parameters."""
    events = protocol("scale", "backward", "scaler_step", of_scale=True, state="scaled")
    examination = crashed(NO_CHECKS, "AssertionError", events=events, optimizers=optimizers)
    assert codes(examination)[0] == code


def steps_of(rank: int, skipped: list[bool]) -> list[StepRecord]:
    """A rank's steps through a scaler."""
    return [
        StepRecord(0, n, n, scaler=0, loss=1.0, scale=64.0, scale_after=64.0, skipped=skip, rank=rank)
        for n, skip in enumerate(skipped)
    ]


def test_ranks_that_find_different_infinities() -> None:
    """The same number of updates and a step that one rank alone skipped: found_inf is not shared."""
    steps = (*steps_of(0, [False, True, False]), *steps_of(1, [False, False, False]))
    found = ranks_disagree.judge(examined(ranks=2, steps=steps, scalers=(SCALER,)))
    assert found is not None
    assert found.code == "MP026"


def test_ranks_that_update_differently() -> None:
    """Nobody skipped and one rank made more updates: the scales drift apart for another reason."""
    steps = (*steps_of(0, [False] * 6), *steps_of(1, [False] * 9))
    found = ranks_disagree.judge(examined(ranks=2, steps=steps, scalers=(SCALER,)))
    assert found is not None
    assert found.code == "MP160"


def test_ranks_that_agree() -> None:
    """The same skips and the same number of updates on both ranks are nothing to say."""
    steps = (*steps_of(0, [True, False]), *steps_of(1, [True, False]))
    assert ranks_disagree.judge(examined(ranks=2, steps=steps, scalers=(SCALER,))) is None


@pytest.mark.parametrize(("amax", "speaks"), [(40000.0, True), (300.0, False)])
def test_a_sum_over_ranks_in_fp16(amax: float, speaks: bool) -> None:
    """An FP16 sum is accused if what two ranks add may pass 65504 and steps were skipped, and not otherwise."""
    event = Event("all_reduce", 0, site=SITE, data={"dtype": "float16", "amax": amax})
    steps = tuple(steps_of(0, [True, False]))
    found = reduce_in_half.judge(examined(ranks=2, events=(event,), steps=steps))
    assert (found is not None) is speaks


def test_a_log_that_filters_nan() -> None:
    """A Trainer's filter is accused where the loss really was NaN, and not for being there."""
    lint = (Finding("MP133", "nan-hidden-in-log", Severity.WARNING, "", OTHER),)
    bad = dataclasses.replace(examined(steps=(dataclasses.replace(BATCH, loss=float("nan")),)), lint=lint)
    good = dataclasses.replace(examined(steps=(BATCH,)), lint=lint)
    unread = examined(
        steps=(dataclasses.replace(BATCH, loss=float("nan")),), facts={"nan_filter": {"file": "train.py", "line": 20}}
    )
    assert [v.location for v in (nan_hidden.judge(unread),) if v is not None] == [OTHER]
    found = nan_hidden.judge(bad)
    assert found is not None
    assert (found.code, found.location) == ("MP133", OTHER)
    assert nan_hidden.judge(good) is None


def test_a_mask_among_the_inputs_is_no_bad_data() -> None:
    """A batch with minus infinity in it that trains well is not accused; one that breaks the loss is."""
    masked = dataclasses.replace(BATCH, batch_finite=False)
    assert bad_data.judge(examined(steps=(masked,))) is None
    broken = bad_data.judge(examined(steps=(dataclasses.replace(masked, loss=float("nan")),)))
    assert broken is not None
    assert broken.code == "MP131"


def test_lint_alone_is_no_verdict() -> None:
    """What only the text shows and the run does not is no verdict on the run."""
    lint = tuple(
        Finding(code, "", Severity.ERROR, "", SITE) for code in ("MP002", "MP003", "MP016", "MP017", "MP020", "MP048")
    )
    assert codes(dataclasses.replace(examined(steps=(BATCH,), optimizers=(ADAM,)), lint=lint)) == []


def test_lint_names_an_exception_of_which_no_judge_knows_the_words() -> None:
    """An error of lint on the raising line is the cause; one on another line, or a mere warning there, is not."""
    read = Finding("MP171", "export-inside-autocast", Severity.ERROR, "Traced with the cache on.", SITE)
    strange = crashed("0 INTERNAL ASSERT FAILED")
    named = dataclasses.replace(strange, lint=(read,))
    elsewhere = dataclasses.replace(strange, lint=(dataclasses.replace(read, location=OTHER),))
    warned = dataclasses.replace(strange, lint=(dataclasses.replace(read, severity=Severity.WARNING),))
    assert codes(named) == ["MP171"]
    assert codes(elsewhere) == codes(warned) == codes(strange) == []


def test_lint_does_not_overrule_a_judge_who_knows_the_words() -> None:
    """A message that says what it is about is believed."""
    read = Finding("MP171", "export-inside-autocast", Severity.ERROR, "Traced with the cache on.", SITE)
    known = dataclasses.replace(crashed("Got unsupported ScalarType BFloat16"), lint=(read,))
    assert codes(known) == ["MP172"]


def an_op(op: str, phase: str = "forward", amax: float = 1.0, amin: float = 1.0, **more: object) -> OpRecord:
    """An FP16 op with one finite operand whose result is infinite."""
    given = TensorStats("float16", (4,), 4, zeros=2, amax=amax, amin=amin)
    made = TensorStats("float16", (4,), 4, infs=2, amax=0.0)
    exact = TensorStats("float32", (4,), 4, zeros=2, amax=1e9, amin=1e9)
    return OpRecord(f"aten.{op}", phase, SITE, (given,), (made,), 3, exact=(exact,), **more)  # type: ignore[arg-type] # fields by name


def located(op: OpRecord, role: str = "first_inf") -> Examination:
    """An examination whose location arm accuses `op`."""
    failed = dataclasses.replace(BATCH, loss=float("nan"))
    arms = (Arm("observe", steps=(failed,), regions=(FP16,)), Arm("locate", ops=(TracedOp(role, op),)))
    return Examination(("train.py",), arms)


def test_gradients_from_before_the_trace_are_no_data() -> None:
    """What the scaler's own unscaling was given is an overflow of a backward; what a forward op was given is data."""
    unscaling = an_op("_amp_foreach_non_finite_check_and_unscale_.default", "optimizer")
    assert bad_data.judge(located(unscaling, "given")) is None
    read = bad_data.judge(located(an_op("mul.Tensor"), "given"))
    assert read is not None
    assert read.code == "MP131"


def test_a_mask_times_a_constant() -> None:
    """Zeros and ones times -1e9 are a mask whose constant overflows; activations times 1e5 are a product that does."""
    mask = located(an_op("mul.Tensor", scalars=(("other", -1e9),)))
    activations = located(an_op("mul.Tensor", amax=3.0, amin=0.01, scalars=(("other", 1e5),)))
    assert codes(mask)[:1] == ["MP042"]
    assert codes(activations)[:1] == ["MP031"]


def test_one_op_is_one_cause() -> None:
    """Several judges may accuse the same op: one verdict is given of it."""
    division = an_op("rsqrt.default", "backward", call="acos", forward_op="aten.acos.default")
    found = codes(located(division))
    assert len(found) == 1


def passes(torch_version: str, *grads: bool) -> Examination:
    """Forward passes in one region, with and without gradients, of a model whose weights never get one."""
    kinds = [Event("region_entered", 0, data={"enabled": True, "dtype": "float16"})]
    kinds += [
        Event("forward_begin", n, site=Location(file="train.py", line=n), data={"in_region": "float16", "grad": grad})
        for n, grad in enumerate(grads, 1)
    ]
    starved = dataclasses.replace(ADAM, parameters_with_grad_ever=1)
    steps = (dataclasses.replace(BATCH, gradless=1),)
    facts = {"torch": torch_version}
    return examined(events=tuple(kinds), optimizers=(starved,), regions=(FP16,), steps=steps, facts=facts)


def test_a_pass_without_gradients_before_one_with() -> None:
    """On a PyTorch with the fault it is what starves the weights; on a newer one, or the other way round, it is not."""
    found = cached_without_graph.judge(passes("2.6.0+cpu", False, True))
    assert found is not None
    assert (found.code, found.location.line) == ("MP087", 1)
    assert cached_without_graph.judge(passes("2.13.0", False, True)) is None
    assert cached_without_graph.judge(passes("2.6.0", True, False)) is None


def test_a_loss_that_starts_next_to_zero_or_falls_below_it_does_not_diverge() -> None:
    """A thousand times almost nothing is little, and an energy that grows more negative is one that is learned."""

    def course(*losses: float) -> Arm:
        return Arm("observe", steps=tuple(StepRecord(0, n, n, loss=loss) for n, loss in enumerate(losses)))

    assert not diverges(course(*[1e-7] * 5, *[1e-3] * 5), 0)
    assert not diverges(course(-0.001, *[-20.0] * 9), 0)
    assert diverges(course(1.0, *[10.0**n for n in range(1, 9)]), 0)


def test_weights_that_are_not_finite_before_the_first_step_are_a_bad_checkpoint() -> None:
    """Whatever precision it runs in, the file that was loaded is accused; sound weights accuse nobody."""
    loaded = Event("file_loaded", 0, site=OTHER)
    broken = dataclasses.replace(BATCH, loss=float("nan"), weights_finite=False)
    bad = examined(events=(loaded,), optimizers=(dataclasses.replace(ADAM, finite_at_first=False),), steps=(broken,))
    found = bad_data.judge(bad)
    assert found is not None
    assert (found.code, found.location) == ("MP136", OTHER)
    assert bad_data.judge(examined(events=(loaded,), optimizers=(ADAM,), steps=(broken,))) is None


def learning(here: float, there: float) -> Examination:
    """A bfloat16 training whose loss goes from 1 to `here`, and its FP32 control, where it goes to `there`."""
    arms = [
        Arm(name, changes, steps=tuple(StepRecord(0, n, n, loss=1.0 + (end - 1.0) * n / 39) for n in range(40)))
        for name, changes, end in (("observe", (), here), ("fp32", (Intervention("precision", "fp32"),), there))
    ]
    low = RegionRecord(SITE, "cpu", "bfloat16", True, entered=40, modules=40, low_ops=40)
    arms[0] = dataclasses.replace(arms[0], regions=(low,), optimizers=(ADAM,))
    return Examination(("train.py",), tuple(arms))


def test_a_training_that_falls_behind_is_an_open_question() -> None:
    """While FP32 learns: then no cause may be known, but all is not well. Two curves that both fall are left alone."""
    stuck = learning(0.97, 0.2)
    assert "bfloat16 more range" in (open_question(stuck) or "")
    with_locate = stuck.with_arm(Arm("locate"))
    following = next_arm(with_locate)
    assert following is not None
    assert following.name == "fp16"
    assert open_question(learning(0.3, 0.0)) is not None
    assert open_question(learning(0.4, 0.2)) is None
    assert open_question(learning(0.2, 0.0)) is None
    assert open_question(learning(0.97, 0.9)) is None


def test_a_failure_that_fp32_shares_is_no_question_of_precision() -> None:
    """Without a cause that fits, the place is said all the same."""
    inside, nothing = (TensorStats("float32", (2, 2), 4, nans=n) for n in (0, 4))
    op = OpRecord("aten.lgamma.default", "forward", SITE, (inside,), (nothing,))
    steps = tuple(StepRecord(0, n, n, loss=1.0 if n < 3 else math.nan, weights_finite=n < 3) for n in range(9))
    low = RegionRecord(SITE, "cpu", "bfloat16", True, entered=9, modules=9, low_ops=9)
    arms = [
        Arm("observe", steps=steps, optimizers=(ADAM,), regions=(low,)),
        Arm("fp32", (Intervention("precision", "fp32"),), steps=steps, optimizers=(ADAM,)),
        Arm("locate", steps=steps[:4], ops=(TracedOp("first_nan", op, 3),)),
    ]

    question = open_question(Examination(("train.py",), tuple(arms), seconds_left=100.0)) or ""

    assert "FP32 fails as well" in question
    assert "aten.lgamma.default" in question
    assert "iteration 3" in question


def skipping(pattern: list[bool]) -> Examination:
    """A healthy training at a scale of 64, some steps of which are skipped."""
    return examined(steps=tuple(steps_of(0, pattern)), optimizers=(ADAM,), scalers=(SCALER,))


def test_a_run_that_skips_a_third_of_its_steps_is_never_well() -> None:
    """Whatever the cause: it asks for the experiment that would tell. A skip now and then is benign."""
    assert "fixed loss scale 64" in (open_question(skipping([False, False, True] * 8 + [True])) or "")
    assert open_question(skipping([False] * 9 + [True] + [False] * 14)) is None


def filled(held: float, steps: int) -> Arm:
    """An arm with `held` in memory of torch.empty that took `steps` healthy steps."""
    records = tuple(StepRecord(0, n, n, loss=1.0) for n in range(steps))
    return Arm("fill-empty", (Intervention("fill_empty", held),), steps=records)


@pytest.mark.parametrize(("steps", "code"), [(8, None), (9, "MP137")])
def test_an_arm_that_ends_before_the_failure_says_nothing_of_memory(steps: int, code: str | None) -> None:
    """The loss is NaN at iteration 8: filled memory is the cure only if that iteration was reached with it."""
    records = tuple(StepRecord(0, n, n, loss=1.0 if n < 8 else math.nan) for n in range(12))
    made = Event("empty_made", 0, site=SITE)
    known = examined(steps=records, events=(made,)).with_arm(filled(0.0, steps))
    verdict = uninitialised.judge(known)
    assert (None if verdict is None else verdict.code) == code


LOADS = [
    ({"given": 6, "unexpected": 6, "missing": 6, "moved": 0}, "MP136"),
    ({"given": 6, "unexpected": 4, "missing": 4, "moved": 4}, "MP136"),
    ({"given": 6, "unexpected": 2, "missing": 2, "moved": 0}, None),
    ({"given": 6, "unexpected": 6, "missing": 0, "moved": 0}, None),
    ({"given": 0, "unexpected": 0, "missing": 6, "moved": 0}, None),
    ({"given": 4, "unexpected": 0, "missing": 2, "moved": 0}, None),
]


@pytest.mark.parametrize(("counts", "code"), LOADS)
def test_weights_that_were_not_taken(counts: dict[str, int], code: str | None) -> None:
    """Nothing fits, or a prefix differs; a head that is left out, and a model without weights, are choices."""
    event = Event(
        "weights_restored", 0, site=SITE, data={"of": "Net", **counts, "first_missing": [], "first_unexpected": []}
    )
    verdict = weights_not_taken.judge(examined(events=(event,)))
    assert (None if verdict is None else verdict.code) == code


def test_weights_that_a_second_load_takes_are_there() -> None:
    """Names are tried one way, then another: the last load of a kind of module counts."""
    first = {"of": "Net", "given": 6, "unexpected": 6, "missing": 6, "moved": 6}
    second = {"of": "Net", "given": 6, "unexpected": 0, "missing": 0, "moved": 0}
    events = tuple(Event("weights_restored", n, site=SITE, data=data) for n, data in enumerate((first, second)))
    assert weights_not_taken.judge(examined(events=events)) is None


@pytest.mark.parametrize(
    ("exact", "severity", "code"),
    [(0.01, Severity.WARNING, "MP168"), (0.9, Severity.WARNING, None), (0.01, Severity.INFO, None)],
    ids=["FP32 learns", "FP32 does not learn either", "lint is not sure"],
)
def test_lint_names_what_a_slow_training_loses(exact: float, severity: Severity, code: str | None) -> None:
    """No judge speaks, and FP32 learns clearly better: what lint says of rounding is the cause that is left."""
    here = tuple(StepRecord(0, n, n, loss=1.0, batch=str(n)) for n in range(40))
    there = tuple(StepRecord(0, n, n, loss=1.0 if n < 9 else exact, batch=str(n)) for n in range(40))
    control = Arm("fp32", (Intervention("precision", "fp32"),), steps=there, optimizers=(ADAM,))
    read = Finding("MP168", "float-is-no-island", severity, "no island", SITE)
    known = examined(steps=here, optimizers=(ADAM,), regions=(FP16,)).with_arm(control)
    assert codes(dataclasses.replace(known, lint=(read,))) == ([] if code is None else [code])
