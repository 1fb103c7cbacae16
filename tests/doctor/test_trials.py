"""Changes are tried in order until a run with one is healthy; what float32 is not known to cure is left alone."""

from __future__ import annotations

import dataclasses

import pytest

from mixprec.doctor._arm import Arm, Examination, Intervention, StepRecord, TracedOp
from mixprec.doctor._diagnosis import Diagnosis
from mixprec.doctor._trials import tried
from mixprec.records import Confidence, Evidence, Location, OpRecord, Severity, Verdict

SCRIPT = "model = build()\nfor x in data:\n    train(model, x)\n"


def arm(name, loss, steps=6, **more):
    """An arm whose loss ends like this."""
    return Arm(
        name,
        steps=tuple(StepRecord(0, n, n, loss=loss if n == steps - 1 else 1.0) for n in range(steps)),
        ended="stopped",
        seconds=1.0,
        **more,
    )


BAD, GOOD = float("nan"), 1.0


def island(file, *modules, **more):
    """What an island arm leaves behind."""
    part = {"kind": "Linear", "device": "cpu", "low": ["float16"], "others": False, "keywords": False, "nested": False}
    holder = {"file": str(file), "function": "<module>", "line": 3, "name": "model", "torch": True}
    return {
        "modules": list(modules),
        "parts": [{"path": path, **part} for path in modules],
        "holders": [{**holder, "paths": list(modules)}],
        "iteration": 5,
        "complete": True,
        **more,
    }


@pytest.fixture
def diagnosis(tmp_path):
    """A script that fails in a part of a library's model, which float32 cures; its only line calls the model."""
    (tmp_path / "train.py").write_text(SCRIPT)
    at = Location(file=str(tmp_path / "train.py"), line=3, module="net.3")
    verdict = Verdict(
        "MP030", "It overflows.", Severity.ERROR, Confidence.CONFIRMED, at, (Evidence("first op", "mm", arm="locate"),)
    )
    op = OpRecord(op="aten.mm.default", phase="forward", location=at, index=0, module_class="Linear")
    known = Examination(
        ("train.py",),
        (
            arm("observe", BAD),
            arm("fp32", GOOD, interventions=(Intervention("precision", "fp32"),)),
            arm("locate", BAD, ops=(TracedOp("first_nan", op, 5),)),
        ),
    )
    return Diagnosis(known, (verdict,))


class Bench:
    """Answers each plan by the next of the arms that it was given."""

    def __init__(self, *arms, time=100.0):
        self.arms = list(arms)
        self.plans = []
        self.texts = []
        self.time = time

    def run(self, plan, replace):
        self.plans.append(plan)
        self.texts.append(dict(replace))
        answer = self.arms.pop(0)
        changed = (Intervention("patch"),) if replace else ()
        return dataclasses.replace(answer, name=plan.name, interventions=(*plan.interventions, *changed))

    def allows(self, seconds):
        return seconds <= self.time

    def share(self):
        return 20.0


def test_modules_are_searched_where_the_line_only_calls_the_model(diagnosis, tmp_path):
    """The search, then a run with the lines that it leads to; the verdict says both."""
    found = island(tmp_path / "train.py", "net.3")
    bench = Bench(arm("", BAD, facts={"island": found}), arm("", GOOD, steps=30))

    after = tried(diagnosis, bench)

    assert [plan.name for plan in bench.plans] == ["island-1", "patch-1"]
    assert bench.plans[0].trace == {"search": [5], "seconds": 18.5}
    assert "part = model.net[3]" in next(iter(bench.texts[1].values()))
    assert (after.patch.arm, after.patch.helped) == ("patch-1", True)
    assert after.verdict.evidence[-1] == Evidence(
        "smallest part that has to compute in float32", "net.3 (Linear)", arm="island-1", step=5
    )
    assert after.verdict.fix_tried == Evidence("the run with the patch", "is healthy", arm="patch-1")


def test_a_second_place_is_searched_in_the_patched_run(diagnosis, tmp_path):
    """The first patch stays; the diff is that of both, from the script as it is."""
    file = tmp_path / "train.py"
    second = island(file, "net.7")
    second["holders"][0]["line"] = 6  # where the loop's body is in the patched text
    (tmp_path / "sub").mkdir()
    second["holders"][0]["file"] = str(tmp_path / "sub" / ".." / "train.py")  # the same file, called otherwise
    bench = Bench(
        arm("", BAD, facts={"island": island(file, "net.3")}),
        arm("", BAD, steps=20),
        arm("", BAD, facts={"island": second}),
        arm("", GOOD, steps=30),
    )

    after = tried(diagnosis, bench)

    assert [plan.name for plan in bench.plans] == ["island-1", "patch-1", "island-2", "patch-2"]
    assert bench.plans[2].trace["search"] == [19]
    assert bench.texts[2] == bench.texts[1]
    assert "model.net[3]" in after.patch.diff
    assert "model.net[7]" in after.patch.diff
    assert after.patch.about == "`net.3` and `net.7` compute in float32, with autocast off in them."


def test_modules_that_no_variable_leads_to_are_run_in_float32_from_outside(diagnosis, tmp_path):
    """There is no patch then, and the verdict still says what became of the run."""
    found = island(tmp_path / "train.py", "net.3", holders=[])
    bench = Bench(arm("", BAD, facts={"island": found}), arm("", GOOD, steps=30))

    after = tried(diagnosis, bench)

    assert bench.plans[1].interventions == (Intervention("fp32_modules", ["net.3"]),)
    assert after.patch is None
    assert after.verdict.fix_tried == Evidence("the run with net.3 in float32", "is healthy", arm="island-run")


@pytest.mark.parametrize("facts", [{}, {"island": {"modules": []}}, {"island": {"modules": [""]}}])
def test_without_such_modules_wider_code_is_tried(diagnosis, facts):
    """Nothing found, nothing enough, or only the whole model: then the statement that calls it."""
    bench = Bench(arm("", BAD, facts=facts), arm("", GOOD, steps=30))

    after = tried(diagnosis, bench)

    assert [plan.name for plan in bench.plans] == ["island-1", "patch-1"]
    assert "with torch.autocast(" in after.patch.diff


def test_a_patch_that_learns_something_else_is_none(diagnosis, tmp_path):
    """A healthy run with other losses than float32 has is not called a cure; nothing wider is tried."""
    found = island(tmp_path / "train.py", "net.3")
    other = dataclasses.replace(arm("", 900.0, steps=6), steps=arm("", 900.0).steps)
    bench = Bench(arm("", BAD, facts={"island": found}), other)

    after = tried(diagnosis, bench)

    assert after.patch is None
    assert after.verdict.fix_tried is None
    assert [plan.name for plan in bench.plans] == ["island-1", "patch-1"]


def test_skips_at_the_start_are_not_held_against_a_patch(diagnosis, tmp_path):
    """They put a run behind FP32, which makes none: it runs again from the scale that it found."""

    def behind(skipped):
        first = [StepRecord(0, n, n, loss=1.0, scale=64.0 * 2 ** (3 - n), skipped=True) for n in range(skipped)]
        rest = [StepRecord(0, n, n, loss=2.0 if skipped else 1.0, scale=512.0) for n in range(skipped, 20)]
        return dataclasses.replace(arm("", GOOD), steps=(*first, *rest))

    found = island(tmp_path / "train.py", "net.3")
    bench = Bench(arm("", BAD, facts={"island": found}), behind(3), behind(0))

    after = tried(diagnosis, bench)

    assert [plan.name for plan in bench.plans] == ["island-1", "patch-1", "patch-1-settled"]
    assert bench.plans[2].interventions == (Intervention("init_scale", 512.0),)
    assert bench.texts[2] == bench.texts[1]
    assert after.patch.arm == "patch-1-settled"


def healthy(diagnosis):
    return dataclasses.replace(
        diagnosis, verdicts=(), examination=Examination(("train.py",), (arm("observe", GOOD), arm("fp32", GOOD)))
    )


def without_control(diagnosis):
    return dataclasses.replace(
        diagnosis, examination=dataclasses.replace(diagnosis.examination, arms=diagnosis.examination.arms[:1])
    )


def fp32_fails(diagnosis):
    arms = (diagnosis.examination.arms[0], arm("fp32", BAD), diagnosis.examination.arms[2])
    return dataclasses.replace(diagnosis, examination=dataclasses.replace(diagnosis.examination, arms=arms))


@pytest.mark.parametrize("change", [healthy, without_control, fp32_fails])
def test_no_island_where_float32_is_no_cure(diagnosis, change):
    """A healthy script, one without a control, one that fails in float32 too: nothing is run."""
    before = change(diagnosis)

    assert tried(before, Bench()) == before


def test_nothing_is_begun_that_there_is_no_time_for(diagnosis):
    """Less than one and a half runs is left."""
    assert tried(diagnosis, Bench(time=1.0)) == diagnosis


def test_ctrl_c_in_a_trial_keeps_what_is_known(diagnosis):
    """The arm that was interrupted is there, and the diagnosis says that it was."""
    after = tried(diagnosis, Bench(dataclasses.replace(arm("", BAD), ended="interrupted")))

    assert after.interrupted
    assert after.examination.arms[-1].name == "island-1"
