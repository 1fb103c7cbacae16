"""Judges asked about recorded examinations of the doctor's own cases: the planted cause comes first, at its line.

The recordings are what `python -m benchmarks.doctor_score --record tests/doctor/judges/recorded` kept of real runs.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import pytest

from mixprec.doctor._arm import Examination
from mixprec.doctor._kept import kept as read
from mixprec.doctor._plan import next_arm
from mixprec.doctor._verdict import open_question, verdicts
from mixprec.doctor.judges import all_judges

HERE = Path(__file__).parent
CASES = HERE.parent / "cases"
RECORDED = sorted((HERE / "recorded").glob("*.jsonl.xz"))
ALSO = json.loads((CASES / "also.json").read_text())

FAULTY = [path for path in RECORDED if "-bad.jsonl" in path.name]
HEALTHY = [path for path in RECORDED if "-good.jsonl" in path.name]


kept = functools.cache(read)
"""Each recording is read once."""


def name_of(path: Path) -> str:
    """The case's folder."""
    return path.name.partition(".")[0].rpartition("-")[0]


def marked_lines(name: str) -> list[int]:
    """Lines of the faulty script that may be accused."""
    text = (CASES / name / "bad.py").read_text()
    return [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# FAULT")]


def test_every_case_is_recorded() -> None:
    """Faulty scripts and their healthy neighbours alike."""
    scripts = {f"{script.parent.name}-{script.stem}" for script in CASES.glob("*/*.py")}
    assert {path.name.removesuffix(".jsonl.xz") for path in RECORDED} == scripts


@pytest.mark.parametrize("path", FAULTY, ids=name_of)
def test_the_planted_cause_comes_first(path: Path) -> None:
    """Of a script with a planted fault, the first verdict names its cause and a line of it."""
    name = name_of(path)
    first = verdicts(kept(path))[0]
    assert first.code in (name[:5].upper(), *ALSO.get(name, ()))
    assert first.location.line in marked_lines(name)


@pytest.mark.parametrize("path", HEALTHY, ids=name_of)
def test_a_healthy_script_is_left_alone(path: Path) -> None:
    """Of the script without the fault nothing is said, and nothing is left open."""
    examination = kept(path)
    assert [verdict.code for verdict in verdicts(examination)] == []
    assert open_question(examination) is None


@pytest.mark.parametrize("path", FAULTY, ids=name_of)
def test_evidence_names_its_arm(path: Path) -> None:
    """Every measured value of a verdict that tells an arm tells one that was run."""
    examination = kept(path)
    arms = {arm.name for arm in examination.arms}
    for verdict in verdicts(examination):
        assert verdict.evidence
        assert {one.arm for one in (*verdict.evidence, *verdict.ruled_out) if one.arm is not None} <= arms


def test_recordings_say_nothing_of_the_machine() -> None:
    """What was examined is named without the folder that it was in."""
    for path in RECORDED:
        assert kept(path).command[0] in ("bad.py", "good.py")


def test_every_judge_that_never_spoke_is_known() -> None:
    """A judge that no recording makes speak is tested by hand, in a file of its own name or in `test_by_hand`."""
    spoke = {name for path in FAULTY for name, judge in all_judges() if judge(kept(path)) is not None}
    by_hand = (HERE / "test_by_hand.py").read_text()
    silent = [name for name, _ in all_judges() if name not in spoke and f"{name}.judge" not in by_hand]
    assert silent == []


def test_a_judge_of_nothing_says_nothing() -> None:
    """No judge speaks, or fails, of an examination without arms."""
    assert verdicts(Examination(("train.py",))) == ()


PARTS = ("optimizers", "scalers", "regions", "steps", "events", "modules", "ops", "facts")


@pytest.mark.parametrize("part", PARTS)
def test_missing_records_break_no_judge(part: str) -> None:
    """A run that was killed early may lack any kind of record: judges then say less, and never fail."""
    for path in FAULTY:
        examination = kept(path)
        empty = {} if part == "facts" else ()
        arms = tuple(dataclasses.replace(arm, **{part: empty}) for arm in examination.arms)
        torn = dataclasses.replace(examination, arms=arms)
        assert isinstance(verdicts(torn), tuple)
        assert open_question(torn) is None or isinstance(open_question(torn), str)
        next_arm(torn)
