"""MP290: an ignore comment silences nothing."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP290",
    name="unused-ignore",
    title="An ignore comment silences nothing.",
    symptom="The comment stays behind after the code was repaired, and would hide a new mistake of the same kind.",
    evidence="No finding with the codes that the comment names stands at its statement.",
    fix="Remove the comment, or correct its codes.",
    where=(Where.LINT,),
    raises="silent",
)
