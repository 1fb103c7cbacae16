"""A rule's examples are its tests: what it shows as bad it finds, what it shows as good nobody objects to."""

from __future__ import annotations

import ast
import re

import pytest

from mixprec.lint import FixSafety, Project, Rule, all_rules, lint_source
from mixprec.records import Finding, Severity

RULES = all_rules()
IDS = [f"{rule.code}-{rule.name}" for rule in RULES]


def linted(rule: type[Rule], source: str) -> list[Finding]:
    return lint_source(source, "example.py", project=Project(requirements=rule.requirements))


def applied(source: str, findings: list[Finding]) -> str:
    """`source` with every edit of `findings` carried out, from the end to the start."""
    lines = source.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    edits = {edit for finding in findings if finding.fix is not None for edit in finding.fix.edits}
    for edit in sorted(edits, key=lambda e: (e.start_line, e.start_column), reverse=True):
        start = starts[edit.start_line - 1] + edit.start_column - 1
        end = starts[edit.end_line - 1] + edit.end_column - 1
        source = source[:start] + edit.text + source[end:]
    return source


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_bad_yields_exactly_the_rules_code(rule):
    """The bad example yields this rule's code, with its name, and no other code."""
    found = linted(rule, rule.bad)

    assert {finding.code for finding in found} == {rule.code}
    assert rule.name in {finding.name for finding in found}


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_good_yields_nothing_from_any_rule(rule):
    """The good example is silent under every rule."""
    assert linted(rule, rule.good) == []


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_safe_fix_turns_bad_into_good_and_stays(rule):
    """Where the fix is safe: fixed bad is good, byte by byte, and linting it again asks for nothing more."""
    found = linted(rule, rule.bad)
    fixed = applied(rule.bad, [finding for finding in found if finding.fix is not None and finding.fix.safe])

    ast.parse(fixed)
    if rule.fix_safety is FixSafety.SAFE:
        assert fixed == rule.good
        assert linted(rule, fixed) == []
    else:
        assert fixed == rule.bad


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_an_offered_fix_parses(rule):
    """Every edit that a finding offers, safe or not, leaves text that is Python."""
    for finding in linted(rule, rule.bad):
        ast.parse(applied(rule.bad, [finding]))


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_rule_says_what_it_must(rule):
    """Code, name, texts and severity are there and have their form."""
    assert re.fullmatch(r"MP\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert isinstance(rule.severity, Severity)
    assert rule.title
    assert rule.why.rstrip().endswith((".", "?"))
    assert all(source.startswith("https://") for source in rule.sources)


def test_names_are_unique():
    """No two rules share a name; rules that share a code are told apart by it."""
    names = [rule.name for rule in RULES]

    assert sorted(names) == sorted(set(names))
