"""Text says where, what, why and what to do, and points at the right columns."""

from __future__ import annotations

import io

import pytest

from mixprec.records import Evidence, Finding, Fix, Location, Severity
from mixprec.report import text
from mixprec.report.comparison import Comparison, Grid, Outcome

SOURCE = "import torch\n\tclip_grad_norm_(parameters, 1.0)\nlast"


def printed(renderable, width="80", monkeypatch=None):
    """What a pipe of that width receives."""
    file = io.StringIO()
    monkeypatch.setenv("COLUMNS", width)
    text.console(file).print(renderable)
    return file.getvalue()


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (Location("a.py", 3, 5), "a.py:3:5"),
        (Location("a.py", 3), "a.py:3"),
        (Location("a.ipynb", 3, 5, cell=2), "a.ipynb:cell 2:3:5"),
        (Location(module="encoder.0", op="softmax"), "encoder.0 softmax"),
        (Location("a.py", 3, module="encoder"), "a.py:3 (encoder)"),
        (Location(), ""),
    ],
)
def test_a_place_says_what_is_known(location, expected):
    """File, line and column, or module and op, or both; nothing where nothing is known."""
    assert text.place(location) == expected


@pytest.mark.parametrize(
    ("location", "marked"),
    [
        (Location("a.py", 2, 2, 2, 17), "clip_grad_norm_"),
        (Location("a.py", 2, 18, 2, 28), "parameters"),
        (Location("a.py", 2, 2), "clip_grad_norm_(parameters, 1.0)"),
        (Location("a.py", 2, 2, 3, 5), "clip_grad_norm_(parameters, 1.0)"),
        (Location("a.py", 3, 1, 3, 1), "l"),
    ],
)
def test_carets_stand_under_the_columns_that_are_meant(location, marked):
    """The characters over the carets are the ones located, tabs included; a span over lines is marked to the end of
    its first line, and an empty one is still seen.
    """
    (line, _), (carets, _) = text.excerpt(location, SOURCE)

    start, width = carets.index("^"), carets.count("^")
    assert line[start : start + width] == marked
    assert carets.rstrip("^").strip(" |") == ""


@pytest.mark.parametrize("location", [Location("a.py"), Location("a.py", 99, 1), Location("a.py", 0, 1)])
def test_a_line_that_is_not_there_is_not_shown(location):
    """No excerpt for an unknown line; no crash either."""
    assert list(text.excerpt(location, SOURCE)) == []


def test_a_finding_reads_from_place_to_fix(monkeypatch):
    """Heading, source, evidence with arm and step, fix: in this order, in a form that editors can jump to."""
    finding = Finding(
        "MP002",
        "clip-before-unscale",
        Severity.ERROR,
        "Gradients are clipped while scaled.",
        Location("a.py", 2, 2, 2, 17),
        (Evidence("norm", 61304.0, arm="fp32", step=3), Evidence("limit", 1, "L2")),
        Fix("Unscale first:\nscaler.unscale_(optimizer)"),
    )

    lines = printed(text.finding_text(finding, SOURCE), monkeypatch=monkeypatch).splitlines()

    assert [line.rstrip() for line in lines[:7]] == [
        "a.py:2:2: error MP002 clip-before-unscale: Gradients are clipped while scaled.",
        "    2 |     clip_grad_norm_(parameters, 1.0)",
        "      |     ^^^^^^^^^^^^^^^",
        "  seen: norm = 61304 (fp32, step 3)",
        "  seen: limit = 1 L2",
        "  fix: Unscale first:",
        "       scaler.unscale_(optimizer)",
    ]


def test_markup_in_a_message_is_printed_as_it_is(monkeypatch):
    """Square brackets in code and messages are text, not styling."""
    finding = Finding("MP001", "name", Severity.INFO, "see ignore[MP002] and [bold]x[/bold] :warning:")

    assert "see ignore[MP002] and [bold]x[/bold] :warning:" in printed(
        text.finding_text(finding), monkeypatch=monkeypatch
    )


def test_a_comparison_prints_tables_then_reasons(monkeypatch):
    """Each run appears in the table and once more with its verdict and its reason; lines fit the width."""
    file = io.StringIO()
    monkeypatch.setenv("COLUMNS", "80")
    comparison = Comparison(
        "Title",
        "Lead.",
        (Outcome("fp32", True, "It just works."), Outcome(".half()", False, "It does not.")),
        (Grid("Result", ("run", "loss"), (("fp32", "0.1"), (".half()", "nan"))),),
        facts=(("machine", "2 cores"),),
    )

    text.print_comparison(text.console(file), comparison)

    out = file.getvalue()
    assert "fp32: trained. It just works." in out
    assert ".half(): did not train. It does not." in out
    assert out.index("Title") < out.index("0.1") < out.index("It just works.") < out.index("2 cores")
    assert max(map(len, out.splitlines())) <= 80
