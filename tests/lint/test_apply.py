"""Fixes are applied until none is left; what comes out is Python, in the file's own encoding and line ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.lint._apply import fix, parses
from mixprec.lint._decode import Decoded, decode
from mixprec.lint._document import ScriptDocument, splice
from mixprec.lint._lines import Lines
from mixprec.records import Edit, Finding, Fix, Location, Severity


def _script(source: str) -> ScriptDocument:
    return ScriptDocument(Decoded(source, "utf-8", False))


def _finding(edits: Sequence[Edit], safe: bool = True, code: str = "MP002") -> Finding:
    where = Location("f.py", edits[0].start_line, edits[0].start_column)
    return Finding(code, "n", Severity.ERROR, "m", where, fix=Fix("do it", safe=safe, edits=tuple(edits)))


def _clip_rule(source: str) -> list[Finding]:
    """A stand-in for a rule: every `clip()` wants `unscale()` on the line before it."""
    lines = Lines(source)
    rows = [lines.line(number) for number in range(1, len(lines) + 1)]
    found = []
    for number, row in enumerate(rows, start=1):
        before = rows[number - 2].strip() if number > 1 else ""
        if row.strip().startswith("clip(") and before != "unscale()":
            indent = row[: len(row) - len(row.lstrip())]
            found.append(_finding([Edit(number, 1, number, 1, f"{indent}unscale()\n")]))
    return found


def _rename_rule(old: str, new: str, safe: bool = True) -> Callable[[str], list[Finding]]:
    """A stand-in for a rule: every word `old` should be `new`."""

    def lint(source: str) -> list[Finding]:
        lines = Lines(source)
        places = [
            (lines.place(match.start()), lines.place(match.end())) for match in re.finditer(rf"\b{old}\b", source)
        ]
        return [_finding([Edit(*start, *end, new)], safe) for start, end in places]

    return lint


def test_all_fixes_are_made_and_nothing_is_left() -> None:
    """Every safe fix is made, comments and formatting stay, and linting the result finds nothing."""
    source = "for x in y:\n    clip(a)  # why\n\n    clip( b )\n"
    fixed = fix(_script(source), _clip_rule)
    assert fixed.document.source == "for x in y:\n    unscale()\n    clip(a)  # why\n\n    unscale()\n    clip( b )\n"
    assert (len(fixed.applied), fixed.left) == (2, ())
    assert _clip_rule(fixed.document.source) == []


def test_only_safe_fixes_are_made_unless_all_are_asked_for() -> None:
    """A fix that wants a second look is left alone and reported, or made on demand."""
    rule = _rename_rule("a", "b", safe=False)
    assert fix(_script("a = 1\n"), rule).document.source == "a = 1\n"
    assert len(fix(_script("a = 1\n"), rule).left) == 1
    assert fix(_script("a = 1\n"), rule, unsafe=True).document.source == "b = 1\n"


def test_a_fix_that_breaks_the_file_is_not_made() -> None:
    """The fixes that leave Python are made, the one that does not is left and reported."""

    def lint(source: str) -> list[Finding]:
        return [*_rename_rule("a", "b")(source), *_rename_rule("c", "(")(source)]

    fixed = fix(_script("a = 1\nc = 2\na = 3\n"), lint)
    assert fixed.document.source == "b = 1\nc = 2\nb = 3\n"
    assert len(fixed.applied) == 2
    assert len(fixed.left) == 1


def test_a_file_that_does_not_parse_is_not_touched() -> None:
    """Nothing is edited where the result cannot be checked."""
    assert fix(_script("a = (\n"), _rename_rule("a", "b")).document.source == "a = (\n"


def test_a_fix_that_calls_for_itself_again_is_not_made() -> None:
    """A fix that leaves as many findings as before would go on for ever, so it is not made at all."""

    def lint(source: str) -> list[Finding]:
        return [_finding([Edit(1, 1, 1, 1, "# again\n")])]

    fixed = fix(_script("x = 1\n"), lint)
    assert (fixed.document.source, fixed.applied) == ("x = 1\n", ())


def test_a_fix_that_makes_room_for_another_is_followed_by_it() -> None:
    """Fixes go on in rounds: the second sees the text that the first left."""

    def lint(source: str) -> list[Finding]:
        first = [*_rename_rule("a", "b")(source)]
        return first or [
            Finding("MP003", "n", Severity.ERROR, "m", f.location, fix=f.fix) for f in _rename_rule("b", "c")(source)
        ]

    assert fix(_script("a = 1\n"), lint).document.source == "c = 1\n"


def test_overlapping_fixes_take_turns() -> None:
    """Of two fixes for the same characters one is made, and the other is asked again on the new text."""

    def lint(source: str) -> list[Finding]:
        wide = [_finding([Edit(1, 1, 1, 6, "y = 2")])] if source.startswith("x = 1") else []
        return [*wide, *_rename_rule("x", "z")(source)]

    assert fix(_script("x = 1\n"), lint).document.source in ("y = 2\n", "z = 1\n")


def test_edits_of_one_finding_are_made_together_or_not_at_all() -> None:
    """A fix with several edits is one thing."""

    def lint(source: str) -> list[Finding]:
        if source != "(\na\n)\n":
            return []
        return [_finding([Edit(1, 1, 1, 2, "["), Edit(3, 1, 3, 2, "]")])]

    assert fix(_script("(\na\n)\n"), lint).document.source == "[\na\n]\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"clip()\r\nx\r\n", b"unscale()\r\nclip()\r\nx\r\n"),
        (b"clip()\rx\r", b"unscale()\rclip()\rx\r"),
        (b"\xef\xbb\xbfx\nclip()", b"\xef\xbb\xbfx\nunscale()\nclip()"),
        (
            "# coding: latin-1\n'é'\nclip()\n".encode("latin-1"),
            "# coding: latin-1\n'é'\nunscale()\nclip()\n".encode("latin-1"),
        ),
        (b"clip()", b"unscale()\nclip()"),
        (b"x = '\x0c'\nif x:\n\tclip()\n", b"x = '\x0c'\nif x:\n\tunscale()\n\tclip()\n"),
    ],
)
def test_encoding_and_line_ends_are_kept(data: bytes, expected: bytes) -> None:
    """The file keeps its mark, its encoding, its line ends, its tabs and its missing last line end."""
    document = fix(ScriptDocument(decode(data)), _clip_rule).document
    assert document.encode() == expected


def test_a_fix_that_the_encoding_cannot_hold_is_not_made() -> None:
    """A file that declares ASCII does not get a letter that it cannot store."""
    document = ScriptDocument(decode(b"# coding: ascii\na = 1\n"))
    assert fix(document, _rename_rule("a", "ж")).document == document
    assert fix(document, _rename_rule("a", "b")).document.source.endswith("b = 1\n")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(alphabet="ab\né", max_size=20), data=st.data())
def test_splicing_is_replacing_characters(text: str, data: st.DataObject) -> None:
    """Edits given in any order do what replacing their characters one after another from the end does."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    spans = [(start, end) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    lines = Lines(text)
    edits = [Edit(*lines.place(start), *lines.place(end), f"<{start}>") for start, end in spans]
    expected = text
    for start, end in reversed(spans):
        expected = expected[:start] + f"<{start}>" + expected[end:]
    assert splice(text, data.draw(st.permutations(edits))) == expected


@pytest.mark.parametrize("source", ["x = 1", "'\\d'", ""])
def test_python_parses_without_a_warning(source: str) -> None:
    """Warnings that the source causes do not become ours."""
    assert parses(source)


@pytest.mark.parametrize("source", ["(", "x = 1\n  y", "\0", "(" * 500, "print 1"])
def test_what_is_no_python_does_not_parse(source: str) -> None:
    """Whatever keeps a text from parsing is a plain no."""
    assert not parses(source)
