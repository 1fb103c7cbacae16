"""The SARIF document has the structure that the standard asks for, and says what the findings say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mixprec.records import Edit, Finding, Fix, Location, Severity
from mixprec.report.sarif import sarif

FIX = Fix("Insert it.", safe=True, edits=(Edit(3, 1, 3, 1, "scaler.unscale_(opt)\n"),))
FINDINGS = (
    Finding("MP022", "penalty-on-scaled-gradients", Severity.WARNING, "second", Location("b c/é.py", 9, 2)),
    Finding("MP002", "clip-before-unscale", Severity.ERROR, "first", Location("a.py", 3, 5, 4, 9), fix=FIX),
    Finding(
        "MP002", "clip-before-unscale", Severity.ERROR, "in a cell", Location("n.ipynb", 2, 1, 2, 3, cell=4), fix=FIX
    ),
    Finding("MP290", "unused-ignore", Severity.INFO, "nowhere"),
)


def _run(findings: tuple[Finding, ...] = FINDINGS, **more: Any) -> dict[str, Any]:
    (run,) = json.loads(sarif(findings, **more))["runs"]
    return dict(run)


def _check_text(message: Any) -> None:
    assert isinstance(message["text"], str)
    assert message["text"]


def _check_region(region: dict[str, int]) -> None:
    """Section 3.30: lines and columns count from 1, and the end does not come before the start."""
    assert set(region) <= {"startLine", "startColumn", "endLine", "endColumn"}
    assert all(isinstance(number, int) and number >= 1 for number in region.values())
    start = region["startLine"], region.get("startColumn", 1)
    assert (region.get("endLine", start[0]), region.get("endColumn", 10**6)) >= start


@pytest.mark.parametrize("findings", [FINDINGS, ()], ids=["some", "none"])
def test_the_document_is_a_sarif_log(findings: tuple[Finding, ...]) -> None:
    """Required properties are there, references resolve, and values are of the kinds that the standard names."""
    document = json.loads(sarif(findings))
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = document["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    driver = run["tool"]["driver"]
    assert driver["name"] == "mixprec"
    for rule in driver["rules"]:
        assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
        _check_text(rule["shortDescription"])
        _check_text(rule["help"])
    ids = [rule["id"] for rule in driver["rules"]]
    assert ids == sorted(set(ids))
    assert len(run["results"]) == len(findings)
    for result in run["results"]:
        _check_text(result["message"])
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
        for location in result.get("locations", ()):
            physical = location["physicalLocation"]
            assert " " not in physical["artifactLocation"]["uri"]
            if "region" in physical:
                _check_region(physical["region"])
        for fix in result.get("fixes", ()):
            _check_text(fix["description"])
            assert fix["artifactChanges"]
            for change in fix["artifactChanges"]:
                assert change["replacements"]
                for replacement in change["replacements"]:
                    _check_region(replacement["deletedRegion"])


def test_results_say_what_the_findings_say() -> None:
    """Order, code, level, place and fix of every finding are in its result."""
    second, first, cell, nowhere = _run()["results"]
    assert [r["level"] for r in (second, first, cell, nowhere)] == ["warning", "error", "error", "note"]
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "b%20c/%C3%A9.py"
    assert first["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 3,
        "startColumn": 5,
        "endLine": 4,
        "endColumn": 9,
    }
    replacement = first["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert replacement["insertedContent"]["text"] == "scaler.unscale_(opt)\n"
    assert "locations" not in nowhere


def test_a_cell_has_no_region_in_the_file() -> None:
    """A notebook's lines are not the file's, so the cell is named in words and no edit is offered."""
    cell = _run()["results"][2]
    assert "region" not in cell["locations"][0]["physicalLocation"]
    assert "cell 4, line 2" in cell["message"]["text"]
    assert "fixes" not in cell


def test_fingerprints_go_to_their_results() -> None:
    """A fingerprint is written at the finding whose position it was given for."""
    results = _run(fingerprints={1: "abc"})["results"]
    assert [result.get("partialFingerprints") for result in results] == [None, {"mixprec/v1": "abc"}, None, None]


def test_absolute_paths_become_file_addresses() -> None:
    """A path that is not below the working folder is written as an address of its own."""
    finding = Finding("MP002", "n", Severity.ERROR, "m", Location("/data/a b.py", 1, 1))
    uri = _run((finding,))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///data/a%20b.py"
