"""Verdicts belong to lines, not to places that other code may take; the page shows what is stored and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lint_corpus import DATA, PAGE, Corpus, Judged, Repository, dump, line_hash, lint, load, main, page

SCRIPT = """\
import torch

def train(model, optimizer, scaler, loader):
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).mean()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

model = torch.nn.Linear(8, 1).cuda()
train(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda"), loader)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkouts: one with a misuse, one that says nothing of precision."""
    (tmp_path / "owner+trainer" / "src").mkdir(parents=True)
    (tmp_path / "owner+trainer" / ".commit").write_text("0123456789abcdef\n")
    (tmp_path / "owner+trainer" / "src" / "train.py").write_text(SCRIPT)
    (tmp_path / "owner+plain").mkdir()
    (tmp_path / "owner+plain" / ".commit").write_text("fedcba9876543210\n")
    (tmp_path / "owner+plain" / "a.py").write_text("print('an example')\n")
    return tmp_path


def test_every_finding_of_every_checkout_is_listed(folder):
    """A checkout is named by its folder and commit; files that speak of precision are counted apart."""
    corpus = lint(folder, ())

    assert corpus.repositories == (
        Repository("owner/plain", "fedcba9876543210", files=1, speaking=0, info=0, unread=0),
        Repository("owner/trainer", "0123456789abcdef", files=1, speaking=1, info=0, unread=0),
    )
    assert [(f.repository, f.path, f.code, f.line, f.severity, f.verdict) for f in corpus.findings] == [
        ("owner/trainer", "src/train.py", "MP002", 8, "error", "")
    ]


def test_a_verdict_stays_with_its_line_and_leaves_with_it(folder):
    """The same line keeps its verdict; other text in its place is not judged yet."""
    (found,) = lint(folder, ()).findings
    judged = replace(found, verdict="right", reason="Clipped too early.")

    assert lint(folder, [judged]).findings == (judged,)

    file = folder / "owner+trainer" / "src" / "train.py"
    file.write_text(SCRIPT.replace("model.parameters(), 1.0", "model.parameters(), 2.0"))
    (changed,) = lint(folder, [judged]).findings
    assert changed.verdict == ""
    assert line_hash("    x = 1") == line_hash("x = 1") != line_hash("x = 2")


def test_what_is_stored_is_what_was_found(tmp_path, folder):
    """Storing and loading loses nothing; nothing of the judged source is in the file."""
    corpus = lint(folder, ())
    dump(corpus, tmp_path / "data" / "corpus.json")

    assert load(tmp_path / "data" / "corpus.json") == corpus
    assert "clip_grad" not in (tmp_path / "data" / "corpus.json").read_text()
    assert load(tmp_path / "nothing.json") == Corpus((), ())


def test_precision_is_the_share_of_right_findings_among_the_judged():
    """What nobody has judged counts neither way; without verdicts nothing is held against the linter."""
    one = Judged("a/b", "x.py", "MP002", "clip-before-unscale", "error", 1, "0", verdict="right")
    findings = (one, replace(one, line=2, verdict="wrong"), replace(one, line=3, verdict=""))
    corpus = Corpus((), (*findings, replace(one, severity="warning")))

    assert corpus.precision("error") == 0.5
    assert corpus.precision("warning") == 1.0
    assert corpus.precision() == pytest.approx(2 / 3)
    assert Corpus((), ()).precision() == 1.0


def test_the_program_fails_while_something_is_not_judged(folder, capsys, monkeypatch):
    """Each finding without a verdict is printed with its place, and the exit code says that there is one."""
    monkeypatch.setattr("benchmarks.lint_corpus.load", lambda: Corpus((), ()))
    assert main([str(folder)]) == 1
    assert "owner/trainer/src/train.py:8: error MP002 clip-before-unscale" in capsys.readouterr().out

    judged = tuple(replace(finding, verdict="right") for finding in lint(folder, ()).findings)
    monkeypatch.setattr("benchmarks.lint_corpus.load", lambda: Corpus((), judged))
    assert main([str(folder)]) == 0


def test_the_page_is_written_from_the_stored_data():
    """docs/lint-corpus.md says what benchmarks/data/lint_corpus.json says."""
    assert PAGE.read_text(encoding="utf-8") == page(load(DATA))


def test_every_stored_finding_was_judged_and_says_why():
    """No finding of the recorded corpus waits for a verdict, and each verdict has its reason."""
    findings = load(DATA).findings

    assert findings
    for finding in findings:
        assert finding.verdict in ("right", "wrong"), finding
        assert finding.reason.endswith("."), finding


def test_the_recorded_corpus_is_wide_and_its_errors_are_right():
    """At least 25 repositories; at least 95 of 100 errors are right."""
    corpus = load(DATA)

    assert len(corpus.repositories) >= 25
    assert corpus.precision("error") >= 0.95
