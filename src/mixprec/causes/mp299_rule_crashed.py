"""MP299: a rule failed on this file, which is a mistake in mixprec."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP299",
    name="rule-crashed",
    title="A rule failed on this file, which is a mistake in mixprec.",
    symptom="That one rule says nothing about the file; the others do.",
    evidence="The rule raised an exception.",
    fix="Report the file and the message to mixprec.",
    where=(Where.LINT,),
    raises="silent",
)
