"""What surrounds the code says what is true of it: version, licence, named files and targets, forms that parse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import mixprec

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_the_citation_names_this_version_and_licence():
    """CITATION.cff parses, and its version and licence are the package's."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))

    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == mixprec.__version__
    assert citation["license"] == "Apache-2.0"


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_an_issue_form_is_well_formed(form):
    """Each form has a name, a description and fields with labels; the configuration has its one switch."""
    content = yaml.safe_load(form.read_text(encoding="utf-8"))

    if form.name == "config.yml":
        assert set(content) == {"blank_issues_enabled"}
        return
    assert content["name"]
    assert content["description"]
    assert all(field["attributes"]["label"] for field in content["body"])
    ids = [field["type"] for field in content["body"]]
    assert set(ids) <= {"input", "textarea", "dropdown", "checkboxes", "markdown"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/release-checklist.md", "SECURITY.md"])
def test_files_that_are_named_exist(page):
    """Every path of the repository in backticks is there; `mpNNN_name.py` stands for any of its kind."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", text)

    missing = [path for path in named if not (ROOT / path.replace("mpNNN_name.py", "").replace("NAME.py", "")).exists()]
    assert missing == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/release-checklist.md"])
def test_targets_that_are_named_exist(page):
    """Every `make TARGET` is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"make ([a-z]+)(?:`| +#)", (ROOT / page).read_text(encoding="utf-8")))

    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
