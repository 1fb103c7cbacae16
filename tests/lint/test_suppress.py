"""Ignore comments silence what they name at their statement, and idle ones are reported."""

from __future__ import annotations

import pytest

from mixprec.causes import cause_names
from mixprec.lint._document import splice
from mixprec.lint._suppress import UNUSED, find_ignores, sift
from mixprec.records import Finding, Location, Severity

ALL = frozenset(cause_names())


def _finding(line: int, code: str = "MP002") -> Finding:
    return Finding(code, "n", Severity.ERROR, "m", Location("f.py", line, 1))


@pytest.mark.parametrize(
    ("source", "silenced"),
    [
        ("clip()  # mixprec: ignore[MP002] off here\nclip()", {1}),
        ("clip()  # mixprec: ignore\nclip()", {1}),
        ("clip()  #mixprec:ignore[mp002]\nclip()", {1}),
        ("clip()  # mixprec: ignore[clip-before-unscale]\nclip()", {1}),
        ("clip()  # noqa: E501  # mixprec: ignore[MP003, MP002]\nclip()", {1}),
        ("clip()  # mixprec: ignore[MP003]\nclip()", set()),
        ("# mixprec: ignore[MP002]\nclip()\nclip()", {1, 2}),
        ("if x:\n    # mixprec: ignore[MP002]\n\n    # why\n    clip()\nclip()", {2, 3, 4, 5}),
        ("clip(\n  1,\n  2,\n)  # mixprec: ignore[MP002]\nclip()", {1, 2, 3, 4}),
        ("clip(\n  1,  # mixprec: ignore[MP002]\n  2,\n)\nclip()", {1, 2, 3, 4}),
        ("for x in y:  # mixprec: ignore[MP002]\n    clip()", {1}),
        ("clip()\nclip()\n# mixprec: ignore-file[MP002] test data", {1, 2, 3}),
        ("clip()\n# mixprec: ignore-file", {1, 2}),
        ("s = '# mixprec: ignore[MP002]'\nclip()", set()),
        ("# mixprec is a library\nclip()  # see mixprec: it checks this", set()),
    ],
)
def test_a_comment_silences_its_statement(source: str, silenced: set[int]) -> None:
    """A comment covers the whole statement it stands in, or the next one when it stands alone."""
    count = source.count("\n") + 1
    findings = [_finding(line) for line in range(1, count + 1)]
    kept = sift(findings, source, ALL).kept
    assert {f.location.line for f in findings} - {f.location.line for f in kept} == silenced
    assert sift(findings, source, ALL).silenced == len(silenced)


def test_a_reason_is_kept() -> None:
    """The words after the codes are the reason."""
    (ignore,) = find_ignores("clip()  # mixprec: ignore[MP002] the scaler is off  # noqa")
    assert ignore.reason == "the scaler is off"


@pytest.mark.parametrize(
    ("source", "words", "after"),
    [
        ("x()  # mixprec: ignore[MP002] why\ny()\n", "no finding of MP002 stands here", "x()\ny()\n"),
        ("x()\n    # mixprec: ignore\ny()\n", "silences nothing", "x()\ny()\n"),
        ("x()  # mixprec: ignore[MP002] why  # noqa\n", "MP002", "x()  # noqa\n"),
        ("x()  # noqa # mixprec: ignore[MP002]\n", "MP002", "x()  # noqa\n"),
        ("x()  # mixprec: ignore[MP02]\n", "'MP02' is no known code", None),
        ("x()  # mixprec: ignore[MP002\n", "not closed", None),
        ("x()  # mixprec: ignore[]\n", "empty", None),
        ("x()  # mixprec: ignored[MP002]\n", "is none", None),
        ("x()  # mixprec: ingore[MP002]\n", "is none", None),
    ],
)
def test_an_idle_or_broken_comment_is_reported(source: str, words: str, after: str | None) -> None:
    """A comment that silences nothing is found at its place, and its removal leaves the rest of the line."""
    (finding,) = sift([], source, ALL).unused
    assert finding.code == UNUSED
    assert words in finding.message
    column, end = finding.location.column or 0, finding.location.end_column or 0
    line = source.splitlines()[(finding.location.line or 0) - 1]
    assert line[column - 1 : end - 1].startswith("# mixprec")
    assert (finding.fix is None) == (after is None)
    assert finding.severity is (Severity.WARNING if after is None else Severity.INFO)
    if finding.fix is not None:
        assert splice(source, finding.fix.edits) == after


def test_a_broken_comment_silences_nothing() -> None:
    """A misspelt code must not hide a finding."""
    assert sift([_finding(1)], "x()  # mixprec: ignore[MPO02]", ALL).kept == (_finding(1),)


def test_a_comment_for_a_code_that_is_off_is_not_idle() -> None:
    """Whether a comment is needed is known only when its codes are looked for."""
    source = "x()  # mixprec: ignore[MP002, MP003]"
    assert sift([], source, ALL - {"MP003"}).unused == ()
    assert len(sift([], source, ALL).unused) == 1
    assert sift([], source, ALL - {UNUSED}).unused == ()


@pytest.mark.parametrize(
    "source", ["x(  # mixprec: ignore[MP002]\n", "'''\n# mixprec: ignore", "\tx\n y # mixprec: ignore\n"]
)
def test_text_that_is_no_python_does_not_raise(source: str) -> None:
    """Comments are read up to where the text stops being Python."""
    assert len(find_ignores(source)) <= 1
