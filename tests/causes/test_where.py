"""The catalogue says who sees a cause; the linter sees what it has a rule for, no more and no less."""

from __future__ import annotations

from mixprec.causes import Where, all_causes
from mixprec.lint import CRASHED, UNREADABLE, all_rules
from mixprec.lint._suppress import UNUSED
from mixprec.lint.configs import config_rules

SEEN_BY_LINT = {cause.code for cause in all_causes() if Where.LINT in cause.where}
RULES = {rule.code for rule in all_rules()} | {rule.code for rule in config_rules()}
OWN = {CRASHED, UNREADABLE, UNUSED}
"""What the linter says about itself, without a rule."""


def test_every_cause_that_lint_sees_has_a_rule() -> None:
    """`mixprec explain` promises nothing that `mixprec lint` does not look for."""
    assert SEEN_BY_LINT <= RULES | OWN


def test_every_rule_has_a_cause_that_lint_sees() -> None:
    """A finding's code can be explained, and its cause says that the linter sees it."""
    assert RULES <= SEEN_BY_LINT
    assert OWN <= SEEN_BY_LINT
