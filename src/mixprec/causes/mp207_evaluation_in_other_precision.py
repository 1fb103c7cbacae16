"""MP207: training runs under autocast and evaluation does not, or the other way round."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP207",
    name="evaluation-in-other-precision",
    title="Training runs under autocast and evaluation does not, or the other way round.",
    symptom="Evaluation is slower, and its results differ slightly from those in training.",
    evidence="The training loop enters autocast and the evaluation loop calls the same model without it.",
    fix="Use the same region in both, unless the difference is intended.",
    where=(Where.LINT,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP169",),
)
