"""A correct script gets no warning; one mistake put into it gets the code that names it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from mixprec.lint import lint_source
from mixprec.records import Severity

PLACE = Path(__file__).with_name("mutations") / "generator.py"


def load():
    spec = importlib.util.spec_from_file_location("mutation_generator", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GENERATOR = load()
MUTANTS = list({mutant.source: mutant for mutant in GENERATOR.mutants()}.values())
FIRST = {mutant.operator: mutant for mutant in reversed(MUTANTS)}
LAST = {mutant.operator: mutant for mutant in MUTANTS}
SAMPLE = [*FIRST.values(), *(mutant for name, mutant in LAST.items() if mutant is not FIRST[name])]


@pytest.mark.parametrize("name", GENERATOR.scripts())
def test_a_correct_script_gets_no_warning(name):
    """What is mutated is correct to begin with, by every rule."""
    found = lint_source(GENERATOR.scripts()[name], f"{name}.py")

    assert [(f.code, f.location.line) for f in found if f.severity is not Severity.INFO] == []


@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: f"{mutant.operator}-{mutant.script}")
def test_a_planted_mistake_is_named(mutant):
    """The first and the last mutant of every operator are found, with a right code."""
    found = lint_source(mutant.source, f"{mutant.script}.py")

    assert {f.code for f in found if f.severity is not Severity.INFO} & mutant.codes


def test_there_is_enough_to_find():
    """Every mutant is Python, there are over 300, and every order rule that can be broken in code has some."""
    for mutant in MUTANTS:
        ast.parse(mutant.source)
    codes = {code for mutant in MUTANTS for code in mutant.codes}

    assert len(MUTANTS) > 300
    assert len(codes) >= 28
