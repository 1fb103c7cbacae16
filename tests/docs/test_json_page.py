"""docs/json.md shows the keys that the commands write, no more and no fewer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import mixprec
from mixprec import Monitor
from mixprec.cli import main
from mixprec.records import Edit, Evidence, Finding, Fix, Location, Severity, to_json
from mixprec.report.audit_json import audit_document

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```json ([^\n]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def shape(value):
    """Keys at every level: a list by its first element, a scalar by nothing."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value and isinstance(value[0], (dict, list)) else None


@pytest.mark.parametrize("call", [call for call in EXAMPLES if call != "finding"])
def test_the_keys_of_a_command_are_those_on_the_page(call, tmp_path, monkeypatch):
    """`mixprec CALL --format json` writes the keys of the example, in its order, at every level."""
    saved = {"scale": 4096.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}
    (tmp_path / "scaler.json").write_text(json.dumps({**saved, "_growth_tracker": 7}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(main, [*call.split(), "--format", "json"], prog_name="mixprec")
    assert result.exit_code == 0, result.output

    assert json.dumps(shape(json.loads(result.stdout))) == json.dumps(shape(json.loads(EXAMPLES[call])))


def test_the_keys_of_a_finding_are_those_on_the_page():
    """The record of lint, doctor, monitor and audit has the keys of the example."""
    edit = Edit(1, 1, 1, 1, "")
    finding = Finding("MP002", "n", Severity.ERROR, "m", Location(), (Evidence("w", 1),), Fix("t", True, (edit,)))

    assert json.dumps(shape(to_json(finding))) == json.dumps(shape(json.loads(EXAMPLES["finding"])))


def named(heading):
    """The words in backticks of a section, quotes left out."""
    section = re.split(r"^## ", PAGE.partition(f"## `{heading}")[2], flags=re.MULTILINE)[0]
    return set(re.findall(r'`"?(\w+)"?`', section))


def test_the_keys_of_an_audit_are_named():
    """Every key at the top of an audit's document is in its section."""
    model = torch.nn.Linear(8, 8)
    report = mixprec.audit(model, lambda: model(torch.ones(4, 8)).sum().backward())

    written = set(json.loads(audit_document(report)))
    assert written - {"schema"} <= named("mixprec audit")


def test_the_keys_of_a_run_and_its_report_are_named(tmp_path):
    """Every key of the document of `report`, and of a rank in it, is in its section; `run` names its own."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, folder=tmp_path / "run"):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    result = CliRunner().invoke(main, ["report", str(tmp_path / "run"), "--format", "json"], prog_name="mixprec")
    assert result.exit_code in (0, 1), result.output
    document = json.loads(result.stdout)
    assert set(document) - {"schema", "findings", "summary"} <= named("mixprec report")
    assert set(document["ranks"][0]) <= named("mixprec report")
    assert {"folder", "returncode", "seconds", "ranks", "findings", "errors"} <= named("mixprec run")


def test_a_missing_key_would_be_caught():
    """The check can fail: documents that differ in one deep key have different shapes."""
    assert shape({"a": [{"b": 1, "c": 2}]}) != shape({"a": [{"b": 1}]})
    assert shape({"a": [{"b": 1}, {"b": 2}]}) == shape({"a": [{"b": 3}]})
