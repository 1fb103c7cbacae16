"""docs/claims.md: every claim has a verdict and code that can fail, and the table at its top says the same."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "claims.md").read_text(encoding="utf-8")


@pytest.fixture
def generator(monkeypatch):
    """The script that writes the table."""
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("generate_claims")


def test_the_table_is_what_the_headings_say(generator):
    """Table and verdicts agree; run docs/generate_claims.py when this fails."""
    assert importlib.import_module("generated").stale(generator.outputs) == []


def test_every_claim_has_a_verdict_and_code_that_decides_it(generator):
    """Each claim opens with True, False or True when, and its code asserts or raises; there are 25 at least."""
    claims = generator.claims(TEXT)

    assert [claim.words for claim in claims if claim.verdict is None] == []
    assert [claim.words for claim in claims if "```python\n" not in claim.body or "assert " not in claim.body] == []
    assert len(claims) >= 25
    assert {claim.verdict for claim in claims} == {"True", "False", "True when"}


def test_a_claim_without_verdict_would_be_seen(generator):
    """The check can fail: a claim that does not open with a verdict has none, and its neighbour keeps its own."""
    first, second = generator.claims("## A\n\n### one\n\nPerhaps.\n\n### two\n\n**True when** x.\n")

    assert (first.verdict, second.verdict) == (None, "True when")
