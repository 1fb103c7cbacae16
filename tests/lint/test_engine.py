"""A text is parsed only where it speaks of precision, and places in it are Python's own."""

from __future__ import annotations

import pytest

from mixprec.lint import UNREADABLE, Project, _project, all_rules, lint_source
from mixprec.lint._catalogue import speaks
from mixprec.lint._words import AMP_WORDS, mentions

BROKEN = "import torch.cuda.amp\nif:\n"


@pytest.mark.parametrize("text", ["use_amp = True", "torch.amp", "amp.autocast()", "x.half()", "is_fp16", "my_scaler"])
def test_a_text_with_a_word_of_precision_mentions_it(text):
    """A short word counts where no letter stands before it; what follows an underscore or a dot does."""
    assert mentions(text, AMP_WORDS)


@pytest.mark.parametrize("text", ["# an example", "damping = sample(x)", "on behalf of", "trample(clamp)", "timestamp"])
def test_a_word_that_only_contains_a_short_one_is_none(text):
    """Half of Python's files say `example`; they say nothing of precision."""
    assert not mentions(text, AMP_WORDS)
    assert not speaks(text)


def test_a_broken_text_that_says_nothing_of_precision_is_not_parsed():
    """Such a text is nobody's business here, and one more letter makes it ours."""
    assert lint_source("# example\nif:\n", "x.py") == []
    assert [f.code for f in lint_source("# amp\nif:\n", "x.py")] == [UNREADABLE]


@pytest.mark.parametrize("select", [[UNREADABLE], ["MP29"], ["not-python"], ["MP002", UNREADABLE], None])
def test_a_broken_text_is_found_by_every_selection_that_names_it(select):
    """Selecting only the code for broken text finds broken text, though no rule has that code."""
    assert [f.code for f in lint_source(BROKEN, "x.py", select=select)] == [UNREADABLE]
    assert lint_source("import torch.cuda.amp\n", "x.py", select=[UNREADABLE]) == []


def test_a_selection_of_rules_that_do_not_listen_parses_nothing():
    """MP206 listens for custom_fwd, which the broken text does not say."""
    assert "custom_fwd" in next(rule.words for rule in all_rules() if rule.code == "MP206")
    assert lint_source(BROKEN, "x.py", select=["MP206"]) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inside", ["\f", "\v", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_finding_is_where_the_parser_says_it_is(inside, end):
    """Form feeds and Unicode separators end no line, so places and edits after them stay right."""
    call = "scaler = torch.cuda.amp.GradScaler()"
    lines = ["import torch", f"note = '{inside} é'", f"other = '{inside}'; {call}", ""]
    (finding,) = lint_source(end.join(lines), "x.py", select=["MP202"])

    assert finding.location.line == 3
    start = (finding.location.column or 0) - 1
    assert lines[2][start:].startswith("torch.cuda.amp.GradScaler")


def test_a_file_that_was_read_as_a_module_is_not_parsed_again(tmp_path):
    """The parsed module serves its own linting; with another text than the stored one it does not."""
    (tmp_path / "part.py").write_text("x = 1\n")
    project = Project(tmp_path)
    module = project.module("part", str(tmp_path / "main.py"))

    assert module is not None
    assert project.view(str(tmp_path / "part.py"), "x = 1\n") is module
    assert project.view(str(tmp_path / "part.py"), "x = 2\n") is not module


def test_a_project_keeps_the_modules_asked_for_last(tmp_path, monkeypatch):
    """However many modules a run asks for, a bounded number stays in memory, and every one can be had again."""
    monkeypatch.setattr(_project, "MOST_VIEWS", 2)
    names = ["a", "b", "c"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"{name} = 1\n")
    project = Project(tmp_path)
    first, second, third = (project.module(name, str(tmp_path / "main.py")) for name in names)

    assert project.module("c", str(tmp_path / "main.py")) is third
    assert project.module("b", str(tmp_path / "main.py")) is second
    again = project.module("a", str(tmp_path / "main.py"))
    assert again is not first
    assert again is not None
    assert again.source == "a = 1\n"
    assert project.module("missing", str(tmp_path / "main.py")) is None
