"""The doctor's score is what its judges make of the examinations of its own cases."""

from __future__ import annotations

import json

import pytest

from benchmarks import doctor_score
from benchmarks.doctor_score import Case, judged
from mixprec.doctor.judges._say import say
from mixprec.records import Location, Severity

FAULTY = Case("made/bad", doctor_score.OWN / "made" / "bad.py", ("MP031",), (7,))
HEALTHY = Case("made/good", doctor_score.OWN / "made" / "good.py")
RIGHT = say("MP031", "It overflows.", Location(file="bad.py", line=7))


@pytest.mark.parametrize(
    ("found", "detected", "located", "cause"),
    [
        ([RIGHT], True, True, True),
        ([say("MP031", "It overflows.", Location(file="bad.py", line=8))], True, False, True),
        ([say("MP032", "It overflows.", Location(file="bad.py", line=7))], True, True, False),
        ([say("MP031", "It overflows.", severity=Severity.INFO)], False, False, False),
        ([], False, False, False),
    ],
)
def test_a_fault_counts_by_what_is_said_first(found, detected, located, cause):
    """Code and line are judged on their own; information is no detection."""
    score = judged(FAULTY, found, None)

    assert (score.detected, score.located, score.cause) == (detected, located, cause)


def test_whatever_is_said_of_a_healthy_script_is_a_false_alarm():
    """A verdict, or a question that is left open."""
    assert judged(HEALTHY, [], None).detected is False
    assert judged(HEALTHY, [RIGHT], None).detected is True
    assert judged(HEALTHY, [], "Run it in FP32.").detected is True


def test_recorded_examinations_are_judged_as_they_are(tmp_path, capsys):
    """Without running anything the table and the file say what the judges make of the recordings."""
    path = tmp_path / "score.json"
    doctor_score.main(["--recorded", "--only", "mp001_no_scaler/*", "--output", str(path)])

    assert "| doctor | 1/1 | 1/1 | 1/1 | 0/1 |" in capsys.readouterr().out
    assert [score["said"] for score in json.loads(path.read_text())["scores"]] == ["MP001@22", "nothing wrong"]
