"""Configuration rules find what their bad example shows, nothing in the good one, and nothing in other files."""

from __future__ import annotations

import json

import pytest
import yaml

from mixprec.causes import find_cause
from mixprec.lint.configs import ConfigRule, config_rules, lint_configuration
from mixprec.lint.configs._yaml_subset import parse_yaml

RULES = config_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_the_bad_example_yields_this_rule_only(rule: type[ConfigRule]) -> None:
    """`bad` yields exactly one finding, with the rule's code, inside the text; `good` yields none."""
    (finding,) = lint_configuration(rule.bad, rule.example, rule.beside)
    assert (finding.code, finding.name, finding.severity) == (rule.code, rule.name, rule.severity)
    assert 1 <= (finding.location.line or 0) <= len(rule.bad.splitlines())
    assert lint_configuration(rule.good, rule.example, rule.beside) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_a_rule_is_well_formed(rule: type[ConfigRule]) -> None:
    """Code and name are a cause's, sentences end, sources are links, and the example parses in its own syntax."""
    assert find_cause(rule.code).name == rule.name
    assert rule.title.endswith(".")
    assert rule.why.endswith(".")
    assert rule.sources
    assert all(source.startswith("https://") for source in rule.sources)
    for text in (rule.bad, rule.good):
        loaded = json.loads(text) if rule.example.endswith(".json") else yaml.safe_load(text)
        assert isinstance(loaded, dict)


def test_the_place_is_the_value() -> None:
    """A finding stands at the value that contradicts, not at the file's first line."""
    text = '{"train_batch_size": 1,\n "bf16": {"enabled": true},\n "fp16": {"enabled":\n  true}}'
    (finding,) = lint_configuration(text, "ds.json")
    where = finding.location
    assert (where.line, where.column, where.end_line, where.end_column) == (4, 3, 4, 7)


@pytest.mark.parametrize(
    "text",
    [
        '{"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "train_batch_size": "auto"}',
        '{"fp16": {"enabled": true}, "bf16": {"enabled": "auto"}, "train_batch_size": "auto"}',
        '{"fp16": true, "bf16": true}',
        '{"weights": {"fp16": {"enabled": true}, "bf16": {"enabled": true}}}',
        '["fp16", "bf16"]',
        '"fp16"',
        "{",
        "",
        '{"fp16": {"enabled": true, "loss_scale_window": true}, "train_batch_size": 1}',
    ],
)
def test_what_is_open_or_foreign_yields_nothing(text: str) -> None:
    """Values that are decided elsewhere, files of another kind, and broken JSON yield nothing."""
    assert lint_configuration(text, "some.json") == []


def test_a_deepspeed_file_that_is_not_there_says_nothing() -> None:
    """Arguments that name a missing DeepSpeed file are not judged against it."""
    rule = next(rule for rule in RULES if rule.slug == "trainer-and-deepspeed")
    assert lint_configuration(rule.bad, "nowhere/args.json") == []


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb:\n  c: 'no'\n  d: no\n",
        'mixed_precision: "bf16"  # a comment\nnested:\n    deep:\n        x: 2.5\n    y: off\nz: ~\n',
        "a: x#y\nb: it is\nc: 'it''s'\n",
    ],
)
def test_the_yaml_subset_agrees_with_yaml(text: str) -> None:
    """On mappings of scalars the small parser gives what YAML gives."""
    assert parse_yaml(text).plain() == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text", ["- a\n- b: 1\n", "a: [1, 2]\n", "a: &x 1\n", "a: |\n  text\n", "{a: 1}", ":", "a:b", "\t"]
)
def test_yaml_beyond_the_subset_does_not_raise(text: str) -> None:
    """What the small parser does not know is passed over."""
    assert isinstance(parse_yaml(text).plain(), dict)
