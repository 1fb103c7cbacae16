"""docs/README.md leads to every page."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_decision_is_listed_with_its_title():
    """The index has one line per page in docs/decisions, in order, that says the page's own title."""
    pages = sorted(DOCS.glob("decisions/*.md"))
    lines = [
        f"- [{page.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}](decisions/{page.name})" for page in pages
    ]
    listed = [line for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines() if "](decisions/" in line]

    assert pages
    assert listed == lines


def test_every_page_is_reachable(markdown):
    """Each Markdown file directly in docs/ is linked from the index."""
    linked = set(markdown("docs/README.md").links)

    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked
