"""A baseline knows old findings again wherever their line has moved, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.errors import InvalidValueError
from mixprec.lint._baseline import Baseline, Entry, read_baseline
from mixprec.records import Finding, Location, Severity


def _found(*texts: str, file: str = "a.py", code: str = "MP002") -> list[tuple[Entry, Finding]]:
    return [
        (Entry(file, code, text), Finding(code, "n", Severity.ERROR, text, Location(file, line)))
        for line, text in enumerate(texts, start=1)
    ]


def test_what_is_known_is_not_new_and_the_rest_is() -> None:
    """Findings with a known file, code and line text are known, whatever their line number."""
    old = Baseline.of(entry for entry, _ in _found("clip()", "step()"))
    new = old.new(_found("", "", "step()", "other()", "clip()"))
    assert [finding.message for finding in new] == ["", "", "other()"]


def test_equal_lines_are_counted() -> None:
    """A third finding on a line that was known twice is new."""
    old = Baseline.of(entry for entry, _ in _found("clip()", "clip()"))
    assert len(old.new(_found("clip()", "clip()", "clip()"))) == 1
    assert len(old.new(_found("clip()", file="b.py"))) == 1
    assert len(old.new(_found("clip()", code="MP003"))) == 1


def test_what_is_gone_is_counted_in_linted_files_only() -> None:
    """An entry counts as gone when its file was linted and it was not found."""
    old = Baseline.of(entry for entry, _ in [*_found("a()", "b()"), *_found("c()", file="other.py")])
    assert old.gone((entry for entry, _ in _found("a()")), frozenset({"a.py"})) == 1
    assert old.gone([], frozenset({"a.py", "other.py"})) == 3


ENTRIES = st.builds(Entry, st.text(max_size=8), st.sampled_from(["MP002", "MP003"]), st.text(max_size=8))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(entries=st.lists(ENTRIES, max_size=8))
def test_a_baseline_survives_its_file(entries: list[Entry], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Writing and reading gives the same baseline, the file is sorted, and it knows exactly what it was made of."""
    baseline = Baseline.of(entries)
    file = tmp_path_factory.mktemp("baseline") / "known.json"
    file.write_text(baseline.dumps(), encoding="utf-8")
    read = read_baseline(file)
    assert read == Baseline(dict(baseline.counts))
    assert Baseline.of(reversed(entries)).dumps() == baseline.dumps()
    finding = Finding("MP002", "n", Severity.ERROR, "m")
    assert read.new((entry, finding) for entry in entries) == ()


def test_fingerprints_differ_where_entries_do() -> None:
    """Moving a boundary between the parts gives another fingerprint."""
    one, other = Entry("a", "MP002", "bc"), Entry("ab", "MP002", "c")
    assert one.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 32


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": 2, "baseline": []}', '{"schema": 1}', '{"schema": 1, "baseline": [{"file": "a"}]}'],
)
def test_what_is_no_baseline_is_refused(text: str, tmp_path: Path) -> None:
    """A file that cannot be understood stops the run and tells how to write it anew."""
    file = tmp_path / "known.json"
    file.write_text(text)
    with pytest.raises(InvalidValueError, match="--write-baseline"):
        read_baseline(file)
    with pytest.raises(InvalidValueError):
        read_baseline(tmp_path / "missing.json")
