"""Workflow commands carry place, severity and words, with everything escaped that would end them early."""

from __future__ import annotations

from mixprec.records import Finding, Fix, Location, Severity
from mixprec.report.github import annotation, workflow_commands


def test_a_finding_becomes_one_command() -> None:
    """File, lines and columns are properties, severity is the command, and the fix is part of the message."""
    finding = Finding(
        "MP002",
        "clip-before-unscale",
        Severity.ERROR,
        "clipped too early",
        Location("a/b.py", 3, 5, 3, 9),
        fix=Fix("Unscale first."),
    )
    assert annotation(finding) == (
        "::error col=5,endColumn=9,endLine=3,file=a/b.py,line=3,title=MP002 clip-before-unscale"
        "::clipped too early%0AFix: Unscale first."
    )


def test_severities_have_their_commands() -> None:
    """An error is an error, a warning a warning, and info a notice."""
    commands = [annotation(Finding("MP002", "n", severity, "m")).split(" ")[0] for severity in Severity]
    assert commands == ["::error", "::warning", "::notice"]


def test_special_characters_are_escaped() -> None:
    """Nothing in a path or message ends the command or a property early."""
    finding = Finding("MP002", "n", Severity.INFO, "50%:\r\nnext", Location("a,b:c%.py", 1))
    assert annotation(finding) == "::notice file=a%2Cb%3Ac%25.py,line=1,title=MP002 n::50%25:%0D%0Anext"


def test_a_cell_is_named_in_words() -> None:
    """A line of a cell is not given as a line of the notebook's file."""
    text = annotation(Finding("MP002", "n", Severity.ERROR, "m", Location("n.ipynb", 2, 1, cell=3)))
    assert text == "::error file=n.ipynb,title=MP002 n::cell 3, line 2: m"


def test_each_finding_is_on_its_own_line() -> None:
    """The commands come in the order of the findings."""
    findings = [Finding("MP002", "n", Severity.ERROR, word) for word in ("one", "two")]
    assert [line.rsplit("::")[-1] for line in workflow_commands(findings).splitlines()] == ["one", "two"]
    assert workflow_commands([]) == ""
