"""The examples in the docstrings of formats, rules, presets, headroom and layouts are what the code does."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["formats", "_loss_scale", "presets", "_headroom", "_scale_layouts"])
def test_docstring_examples_run(module: str) -> None:
    """Each module's example is there and prints what it says."""
    failed, tried = doctest.testmod(importlib.import_module(f"mixprec.{module}"))
    assert (failed, tried > 0) == (0, True)
