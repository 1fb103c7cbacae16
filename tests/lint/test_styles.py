"""In whatever style a script is written, it is silent when it is right, and a mistake put into it is named."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from mixprec.lint import lint_source
from mixprec.records import Severity

PLACE = Path(__file__).with_name("styles") / "scripts.py"


def load():
    spec = importlib.util.spec_from_file_location("lint_styles", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SCRIPTS = load().SCRIPTS
MISTAKES = [
    (name, place, code) for name, (_, mistakes) in SCRIPTS.items() for place, (code, _, _) in enumerate(mistakes)
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_is_right_is_silent(name):
    """No warning and no error about any of them."""
    found = lint_source(SCRIPTS[name][0], f"{name}.py")

    assert [(f.code, f.location.line) for f in found if f.severity is not Severity.INFO] == []


@pytest.mark.parametrize(("name", "place", "code"), MISTAKES)
def test_a_mistake_put_into_it_is_named(name, place, code):
    """The code of the mistake is given, as a warning or an error."""
    script, mistakes = SCRIPTS[name]
    _, text, instead = mistakes[place]
    assert text in script
    found = lint_source(script.replace(text, instead, 1), f"{name}.py")

    assert code in {f.code for f in found if f.severity is not Severity.INFO}
