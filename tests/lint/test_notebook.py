"""A notebook is linted as one script whose places are cells and lines, and edited without touching anything else."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.lint._decode import Decoded
from mixprec.lint._document import NotebookDocument
from mixprec.lint._json_spans import JsonError, parse
from mixprec.lint._lines import Lines
from mixprec.lint._notebook import NotebookError, neutralise, read_notebook
from mixprec.records import Edit, Finding, Fix, Location, Severity


def _notebook(*cells: str | tuple[str, str], indent: int | None = 1, **metadata: Any) -> str:
    """The text of a notebook: strings are code cells, pairs are kind and text."""
    listed = [("code", cell) if isinstance(cell, str) else cell for cell in cells]
    return json.dumps(
        {
            "cells": [
                {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)} for kind, text in listed
            ],
            "metadata": metadata,
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        indent=indent,
        ensure_ascii=False,
    )


def _document(raw: str) -> NotebookDocument:
    return NotebookDocument(read_notebook(raw), Decoded(raw, "utf-8", False))


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!pip install torch\nx = 1", "pass\nx = 1"),
        ("if x:\n    !ls\n    %time f()", "if x:\n    pass\n    pass; f()"),
        ("%timeit  g(1)\n%timeit -n 3 f()", "pass;    g(1)\npass"),
        ("files = !ls\nt = %timeit -o f()", "files = None\nt = None"),
        ("torch.amp?\n?torch\nf??", "pass\npass\npass"),
        ("%%time\nx = 1", "\nx = 1"),
        ("\n%%capture out\nx = 1", "\n\nx = 1"),
        ("%%bash\nls | grep x\n", "\n\n"),
        ("%%html\n<b>", "\n"),
        ("!pip install \\\n  torch \\\n  numpy\nx = 1", "pass\n\n\nx = 1"),
        ("x = (17\n  % 5)", "x = (17\n  % 5)"),
        ("x = 17 \\\n  % 5", "x = 17 \\\n  % 5"),
        ('s = """\n%d percent\n!done\n"""', 's = """\n%d percent\n!done\n"""'),
        ("x = 5 % 3\ny = a != b\nz = '!x'", "x = 5 % 3\ny = a != b\nz = '!x'"),
        ("# a comment with (\n%magic", "# a comment with (\npass"),
    ],
)
def test_what_is_not_python_becomes_harmless(text: str, python: str) -> None:
    """Magics, shell lines and help requests become Python that does nothing; real operators and strings stay."""
    assert neutralise(text)[0] == python
    ast.parse(neutralise(text)[0])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(alphabet="ab%!?(\"'\\\n #=", max_size=40))
def test_neutralising_keeps_the_number_of_lines(text: str) -> None:
    """Whatever is in a cell, every line keeps its number."""
    assert len(Lines(neutralise(text)[0])) == len(Lines(text))


def test_cells_are_one_script_and_lines_know_their_cell() -> None:
    """Code cells follow one another; text cells count in the numbering; places map back."""
    notebook = read_notebook(_notebook("a = 1\nb = 2", ("markdown", "# text"), "%time\nc = 3\n", "d = 4"))
    assert notebook.source == "a = 1\nb = 2\npass\nc = 3\n\nd = 4\n"
    places = [notebook.locate(line) for line in range(1, 7)]
    assert [(cell.number, line) for cell, line in places] == [(1, 1), (1, 2), (3, 1), (3, 2), (3, 3), (4, 1)]
    assert [notebook.first_line(cell) for cell in notebook.cells] == [1, 3, 6]


def test_a_cell_that_does_not_parse_is_left_out() -> None:
    """One broken cell leaves the others readable and their lines in place."""
    notebook = read_notebook(_notebook("a = 1", "def f(:\n  pass", "b = 2"))
    assert notebook.source == "a = 1\n\n\nb = 2\n"
    assert [cell.error is not None for cell in notebook.cells] == [False, True, False]


@pytest.mark.parametrize("source", ["x = 1\ny = 2", ["x = 1\n", "y = 2"], ["x =", " 1\ny = 2"], [], ""])
def test_both_ways_to_store_a_source_are_read(source: object) -> None:
    """A cell's source may be a string or a list of pieces."""
    raw = json.dumps({"cells": [{"cell_type": "code", "source": source}], "nbformat": 4})
    text = source if isinstance(source, str) else "".join(source)  # type: ignore[arg-type]
    assert read_notebook(raw).cells[0].text == text


@pytest.mark.parametrize("raw", ["", "{", "[]", "{}", '{"cells": 1}', '{"worksheets": []}', "[" * 5000])
def test_what_is_no_notebook_is_refused(raw: str) -> None:
    """Broken JSON, JSON of another kind and absurd nesting are refused in words."""
    with pytest.raises(NotebookError, match=r"JSON"):
        read_notebook(raw)


@pytest.mark.parametrize("cells", [[None], [1], [{}], [{"cell_type": "code"}], [{"cell_type": "code", "source": 3}]])
def test_cells_of_no_known_shape_are_passed_over(cells: object) -> None:
    """A cell without a readable source is no code."""
    assert read_notebook(json.dumps({"cells": cells})).cells == ()


def test_a_notebook_of_another_language_has_no_code() -> None:
    """A notebook whose kernel is not Python is not read as Python."""
    raw = _notebook("x <- 1", kernelspec={"language": "R", "name": "ir"})
    assert read_notebook(raw).cells == ()


@pytest.mark.parametrize("indent", [1, 2, 4, None])
def test_an_edit_changes_one_cell_and_no_other_byte(indent: int | None) -> None:
    """The edited notebook is what writing it anew with the changed cell gives, in the same style."""
    cells = ["é = 1\n", "clip()\nstep()", "%magic\nlast()"]
    document = _document(_notebook(*cells, indent=indent, tag="ü"))
    line = document.notebook.first_line(document.notebook.cells[1])
    edited = document.edited([Edit(line, 1, line, 1, "unscale()\n")])
    assert edited is not None
    expected = _notebook(cells[0], "unscale()\nclip()\nstep()", cells[2], indent=indent, tag="ü")
    assert edited.notebook.raw == expected
    assert edited.encode() == expected.encode()


def test_a_cell_stored_as_one_string_stays_one_string() -> None:
    """The way a source is stored is kept, and so is escaping to ASCII."""
    raw = '{"cells": [{"cell_type": "code", "source": "a()\\nb = \'\\u00e9\'"}]}'
    edited = _document(raw).edited([Edit(1, 1, 1, 2, "c")])
    assert edited is not None
    assert edited.notebook.raw == raw.replace("a()", "c()")


@pytest.mark.parametrize(
    "edit",
    [
        Edit(1, 1, 2, 2, "x"),  # from one cell into the next
        Edit(2, 1, 2, 3, "x"),  # on a magic
        Edit(2, 1, 3, 2, "x"),  # over a magic
        Edit(4, 1, 4, 1, "x"),  # in a cell that does not parse
    ],
)
def test_edits_that_cannot_be_made_are_refused(edit: Edit) -> None:
    """An edit across cells, on a line that is not Python, or in a broken cell is not made at all."""
    document = _document(_notebook("a()", "%magic\nb()", "def f(:"))
    assert document.edited([edit]) is None


def test_a_finding_is_presented_in_its_cell() -> None:
    """Line, end line and edits of a finding are those of its cell."""
    document = _document(_notebook("a = 1\nb = 2", "c = 3\nd()\ne = 5"))
    fix = Fix("say so", safe=True, edits=(Edit(4, 1, 4, 2, "x"),))
    finding = Finding("MP002", "n", Severity.ERROR, "m", Location("n.ipynb", 4, 1, 5, 2), fix=fix)
    shown = document.present(finding)
    assert shown.location == Location("n.ipynb", 2, 1, 3, 2, cell=2)
    assert shown.fix == Fix("say so", safe=True, edits=(Edit(2, 1, 2, 2, "x"),))


def test_a_fix_across_cells_is_shown_in_words_only() -> None:
    """A fix that cannot be made in one cell keeps its words and loses its edits."""
    document = _document(_notebook("a = 1", "b = 2"))
    fix = Fix("do both", safe=True, edits=(Edit(1, 1, 1, 2, "x"), Edit(2, 1, 2, 2, "y")))
    shown = document.present(Finding("MP002", "n", Severity.ERROR, "m", Location("n.ipynb", 1, 1), fix=fix))
    assert shown.fix == Fix("do both", safe=False)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(value=JSON_VALUES, indent=st.sampled_from([None, 1, 4]))
def test_the_json_reader_agrees_with_json(value: object, indent: int | None) -> None:
    """Values are those of `json.loads`, and each node's place holds the node's own text."""
    text = " " + json.dumps(value, indent=indent) + "\n"
    node = parse(text)
    assert node.plain() == json.loads(text)
    assert json.loads(text[node.start : node.end]) == value


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(alphabet='{}[]",:1ntf.e \\', max_size=20))
def test_the_json_reader_refuses_what_json_refuses(text: str) -> None:
    """A text is refused exactly where `json.loads` refuses it."""
    try:
        expected = json.loads(text, strict=False)
    except ValueError:
        with pytest.raises(JsonError):
            parse(text)
    else:
        assert parse(text).plain() == expected
