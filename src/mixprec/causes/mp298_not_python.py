"""MP298: the file, or a cell of a notebook, could not be read as Python."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP298",
    name="not-python",
    title="The file, or a cell of a notebook, could not be read as Python.",
    symptom="It was not linted, so a mistake in it goes unnoticed.",
    evidence="The text does not parse, is no text in its declared encoding, or is larger than a script ever is.",
    fix="Repair the file, or leave it out with exclude.",
    where=(Where.LINT,),
    raises="silent",
)
