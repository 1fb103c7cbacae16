"""Every `>>>` in a docstring is true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules() -> list[str]:
    """Dotted names of the modules whose source holds `>>>`."""
    return [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_hold(name, capsys):
    """Each example prints what the docstring says it prints."""
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)

    assert failed == 0, capsys.readouterr().out
    assert tried > 0, "`>>> ` stands in this module where doctest does not see it"


def test_a_wrong_example_is_caught():
    """The check can fail: an example with a wrong result is counted as failed."""
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "planted", None, 0)

    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    runner.run(example, out=lambda text: None)

    assert runner.failures == 1
