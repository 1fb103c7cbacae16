"""The tutorial shows the scripts as they are, each command names the fault of its chapter, and says so again today."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FAULTS = {
    "crawl": "MP002",
    "overflow": "MP031",
    "flat": "MP001",
    "stuck": "MP061",
    "padding": "MP043",
    "nothing_gained": "MP080",
}


@pytest.fixture
def tutorial(monkeypatch):
    """The script that runs the tutorial."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("run_tutorial")


def shown(name):
    """What the page has between the marks of a script."""
    return re.search(rf"<!-- {name}: begin -->\n(.*?)<!-- {name}: end -->", PAGE, re.DOTALL)[1]


def test_each_script_is_shown_as_it_is(tutorial):
    """The page has every script of the folder word for word, and its command above its output."""
    scripts = {
        path.stem: path.read_text(encoding="utf-8").strip() for path in (ROOT / "docs" / "tutorial").glob("*.py")
    }

    assert set(scripts) == set(tutorial.COMMANDS)
    for name, source in scripts.items():
        assert source in shown(name)
        for command in tutorial.COMMANDS[name]:
            assert f"$ {command}\n" in shown(name)


def test_each_command_names_another_fault(tutorial):
    """The first code in what a command printed is the one that the text is about; six scripts, six codes."""
    for name, code in FAULTS.items():
        recorded = shown(name).partition(f"$ {tutorial.COMMANDS[name][-1]}\n")[2]
        assert re.search(r"MP\d{3}", recorded)[0] == code, name
    assert len(set(FAULTS.values())) == 6


@pytest.mark.slow
def test_the_doctor_says_again_what_is_shown():
    """A run of the doctor today gives the verdict of the page: code, line, confidence, and what was ruled out."""
    command = ["doctor", "--fast", "--steps", "20", "--format", "json", "docs/tutorial/overflow.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mixprec", *command], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    verdict = json.loads(done.stdout)["verdict"]

    assert done.returncode == 1
    assert verdict["code"] == FAULTS["overflow"]
    assert verdict["confidence"] in shown("overflow")
    assert f":{verdict['location']['line']}" in shown("overflow")
    assert "FP32 control" in " ".join(fact["what"] for fact in verdict["ruled_out"])


def test_the_linter_says_again_what_is_shown(tutorial):
    """The chapter that needs no run is printed today as it is shown."""
    again = tutorial.first_finding(tutorial.printed(["-m", *tutorial.COMMANDS["crawl"][0].split()]))

    assert again in shown("crawl")


def test_the_picture_of_the_readme_shows_the_verdict_of_the_tutorial():
    """The SVG names script, code and confidence, is well-formed, and loads nothing from elsewhere."""
    svg = (ROOT / "docs" / "pictures" / "verdict.svg").read_text(encoding="utf-8")
    words = re.sub(r"<[^>]+>", " ", svg).replace("&#160;", " ")

    assert "mixprec doctor --fast --steps 20 docs/tutorial/overflow.py" in words
    assert f"{FAULTS['overflow']} square-overflow" in words
    assert "confirmed by control" in words
    assert "url(http" not in svg
