"""Every document is one object with `"schema": 1` that any JSON parser reads."""

from __future__ import annotations

import json
import math

from mixprec.records import Evidence, Finding, Fix, Location, Severity
from mixprec.report.json import document, findings_document, summary

CLIP = Finding("MP002", "clip-before-unscale", Severity.ERROR, "Clipped while scaled.", Location("train.py", 3, 5))
SLOW = Finding(
    "MP100", "no-fast-16-bit", Severity.WARNING, "Slow.", evidence=(Evidence("ratio", 0.2),), fix=Fix("Stay.")
)


def test_a_document_starts_with_its_schema_and_keeps_the_order_given():
    """The first key is schema, the others follow as they were given."""
    assert list(json.loads(document(b=1, a=2)).items()) == [("schema", 1), ("b", 1), ("a", 2)]


def test_what_json_cannot_hold_is_written_as_a_word():
    """Infinities and NaN, at any depth, become strings that Python's float reads back; finite numbers stay numbers."""
    text = document(values=[math.inf, -math.inf, math.nan, 1.5], deep={"x": (math.inf,)})

    parsed = json.loads(text, parse_constant=lambda word: pytest_fail(word))
    assert parsed["values"][3] == 1.5
    assert [float(word) for word in parsed["values"][:2]] == [math.inf, -math.inf]
    assert math.isnan(float(parsed["values"][2]))
    assert parsed["deep"] == {"x": ["inf"]}


def pytest_fail(word):
    """No bare Infinity or NaN may reach the parser."""
    raise AssertionError(f"{word} is not JSON")


def test_findings_come_with_their_summary():
    """The document of lint and audit holds the findings in order and counts by severity and code."""
    parsed = json.loads(findings_document([CLIP, SLOW, CLIP], version="1"))

    assert [finding["code"] for finding in parsed["findings"]] == ["MP002", "MP100", "MP002"]
    assert parsed["findings"][0]["location"]["line"] == 3
    assert parsed["findings"][1]["fix"] == {"text": "Stay.", "safe": False, "edits": []}
    assert parsed["summary"] == {
        "total": 3,
        "error": 2,
        "warning": 1,
        "info": 0,
        "by_code": {"MP002": 2, "MP100": 1},
    }
    assert parsed["version"] == "1"


def test_nothing_found_is_a_document_too():
    """No findings: every count is there and 0."""
    assert summary([]) == {"total": 0, "error": 0, "warning": 0, "info": 0, "by_code": {}}
