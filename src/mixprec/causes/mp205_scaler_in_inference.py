"""MP205: a loss scaler is used where nothing is trained."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP205",
    name="scaler-in-inference",
    title="A loss scaler is used where nothing is trained.",
    symptom="The scaled loss is reported as the evaluation loss, or nothing happens at all.",
    evidence="scale() is called under no_grad or in a function that has no backward pass.",
    fix="Remove the scaler from evaluation.",
    where=(Where.LINT,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP023", "MP207"),
)
