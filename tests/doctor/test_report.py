"""One diagnosis, three renderings: what came of it stands first, and no rendering says more than the record."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import pytest

from mixprec.doctor import Arm, Diagnosis, Examination, Intervention, Patch
from mixprec.doctor._arm import StepRecord
from mixprec.records import Confidence, Evidence, Fix, Location, Severity, Verdict
from mixprec.report import text
from mixprec.report.diagnosis_json import diagnosis_document
from mixprec.report.diagnosis_text import print_diagnosis
from mixprec.report.html._diagnosis_view import diagnosis_page

DOCS = Path(__file__).parents[2] / "docs"
VERDICT = Verdict(
    "MP030",
    "activation-overflow",
    Severity.ERROR,
    "The output is <too> large.",
    Location(file="train.py", line=21, module="layers.3.wo"),
    (Evidence("largest", math.inf, "", "observe", 3), Evidence("lost", 0.25, "share", "observe")),
    Fix("Run it in FP32."),
    Confidence.CONFIRMED,
    (Evidence("data", "is healthy", "", "fp32"),),
)


def steps(count, loss):
    return tuple(
        StepRecord(0, n, n, loss=loss, scale=2.0**16 / 2**n, grad_norm=1.0, skipped=math.isnan(loss))
        for n in range(count)
    )


KNOWN = Examination(
    ("train.py", "--lr", "1"),
    (
        Arm("observe", steps=steps(4, math.nan), seconds=4.0),
        Arm("fp32", (Intervention("precision", "fp32"),), steps=steps(4, 0.5), ended="stopped", seconds=2.0),
    ),
)
ILL = Diagnosis(KNOWN, (VERDICT,), patch=Patch("It computes in float32.", "--- a\n+++ b\n-x\n+y\n", "patch-1", True))
WELL = Diagnosis(KNOWN, looked_at=(Evidence("headroom", 3.5, "bits", "observe"),))
BROKEN = Diagnosis(KNOWN, problem="The script ends in an error of its own.\n\nTraceback: KeyError")
OPEN = Diagnosis(KNOWN, open_question="Run it longer.")


def printed(diagnosis):
    out = io.StringIO()
    print_diagnosis(text.console(out), diagnosis)
    return out.getvalue()


def test_the_text_begins_with_what_came_of_it():
    """Cause and place, or nothing wrong, or why it could not be judged: in the first line."""
    assert printed(ILL).startswith("MP030 activation-overflow: train.py:21 (layers.3.wo), run with --lr 1\n")
    assert printed(WELL).startswith("nothing wrong: train.py --lr 1\n")
    assert printed(BROKEN).startswith("could not be examined: train.py --lr 1\nThe script ends in an error of its own.")
    assert printed(OPEN).startswith("it fails, and no cause was found: train.py --lr 1\n")


def test_the_text_tells_evidence_exclusions_patch_and_arms():
    """Measured values come with the arm and step that they are from; shares are percentages."""
    said = printed(ILL)

    for words in (
        "largest = inf (arm observe, step 3)",
        "lost = 25 % (arm observe)",
        "data = is healthy (arm fp32)",
        "confirmed by control; error",
        "Run it in FP32.",
        "read: mixprec explain MP030",
        "+y",
    ):
        assert words in said
    assert re.search(r"fp32 +precision=fp32 +enough seen +4 +0 +0\.5 +2\.0", said)
    assert "headroom" in printed(WELL)


def test_the_exit_code_says_what_came_of_it():
    """0 nothing wrong, 1 a cause or an unexplained failure, 2 could not be judged."""
    assert [d.exit_code for d in (WELL, ILL, OPEN, BROKEN)] == [0, 1, 1, 2]
    assert [d.healthy for d in (WELL, ILL, OPEN, BROKEN)] == [True, False, False, False]


def test_what_is_only_info_is_no_fault():
    """A verdict at info is told and the run is healthy; at warning it is not."""
    import dataclasses

    for severity, healthy in ((Severity.INFO, True), (Severity.WARNING, False)):
        verdict = dataclasses.replace(VERDICT, severity=severity)
        assert Diagnosis(KNOWN, (verdict,)).healthy is healthy


def test_the_document_has_the_keys_of_its_page():
    """docs/json.md shows the keys, and numbers that JSON cannot hold are strings."""
    written = json.loads(diagnosis_document(ILL))
    section = (DOCS / "json.md").read_text(encoding="utf-8").partition("## `mixprec doctor SCRIPT`")[2]
    shown = json.loads(re.search(r"^```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1])

    assert list(written) == list(shown)
    assert list(written["verdict"]) == list(shown["verdict"])
    assert list(written["patch"]) == list(shown["patch"])
    assert list(written["arms"][0]) == list(shown["arms"][0])
    assert written["verdict"]["evidence"][0]["value"] == "inf"


@pytest.mark.parametrize("diagnosis", [ILL, WELL, BROKEN, OPEN], ids=["ill", "well", "broken", "open"])
def test_the_page_is_complete_and_escaped(diagnosis):
    """It loads nothing, and text from the script is text."""
    page = diagnosis_page(diagnosis)

    assert "<too>" not in page
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', page)
    assert ("The output is &lt;too&gt; large." in page) == (diagnosis is ILL)
    assert ("Nothing wrong" in page) == (diagnosis is WELL)
    assert "precision=fp32" in page
