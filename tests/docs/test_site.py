"""The site builds without a warning, has every page, loads nothing from elsewhere, and keeps what the text means."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
needs_mkdocs = pytest.mark.skipif(sys.version_info < (3, 11), reason="the tools that build the site need Python 3.11")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built strictly."""
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return target


class Assets(HTMLParser):
    """What a page loads: scripts, styles and pictures."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in ("script", "img") and given.get("src"):
            self.found.append(given["src"])
        if tag == "link" and given.get("rel") == "stylesheet":
            self.found.append(given["href"])


@needs_mkdocs
def test_every_page_is_there_and_can_be_searched(site):
    """Each Markdown file has its HTML page, and the search index knows the words of one deep inside."""
    missing = [
        path
        for path in DOCS.rglob("*.md")
        if not (site / path.relative_to(DOCS)).with_suffix(".html").exists() and path.name != "README.md"
    ]
    assert missing == []
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "clip-before-unscale" in index
    assert "LossScaleFloorError" in index


@needs_mkdocs
def test_pages_load_nothing_from_elsewhere(site):
    """Scripts, styles and pictures are files of the site, so it works without a network and tells nobody."""
    for name in ("index.html", "runbook.html", "how-it-works/formats.html"):
        parser = Assets()
        parser.feed((site / name).read_text(encoding="utf-8"))
        assert parser.found
        assert [asset for asset in parser.found if re.match(r"(https?:)?//", asset)] == []


@needs_mkdocs
def test_pictures_and_titled_fences_arrive(site):
    """Pictures stand in the page as SVG, and a fence with words after its language is a block of code."""
    formats = (site / "how-it-works" / "formats.html").read_text(encoding="utf-8")
    rule = (site / "rules" / "MP002.html").read_text(encoding="utf-8")

    assert formats.count('class="mp"') == 4
    assert "```" not in rule
    assert rule.count("<pre>") >= 2


@pytest.fixture
def hooks(monkeypatch):
    """docs/site_hooks.py."""
    pytest.importorskip("mkdocs", reason="the tools that build the site need Python 3.11")
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("site_hooks")


def test_links_out_of_the_manual_become_names_of_files(hooks):
    """A link to a page of the site stays one, from wherever it is; one to a source becomes its name."""
    relink = hooks.relink

    assert relink("[a](../runbook.md#x)", "docs/guides/gan.md", "guides/gan.md") == "[a](../runbook.md#x)"
    assert relink("[changes](../CHANGELOG.md)", "docs/README.md", "README.md") == "[changes](changes.md)"
    assert relink("[m](docs/lint.md)", "README.zh-CN.md", "zh.md") == "[m](lint.md)"
    assert relink("[how](../benchmarks/traffic.py)", "docs/benchmarks.md", "benchmarks.md") == (
        "how (`benchmarks/traffic.py`)"
    )
    assert relink("[x](https://a.b) [y](#z) ![p](q.svg)", "docs/a.md", "a.md") == (
        "[x](https://a.b) [y](#z) ![p](q.svg)"
    )
