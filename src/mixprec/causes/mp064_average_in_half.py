"""MP064: a moving average of weights or statistics is kept in half precision."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP064",
    name="average-in-half",
    title="A moving average of weights or statistics is kept in half precision.",
    symptom="The average never moves.",
    evidence="The average is held in a 16-bit dtype and one minus the decay is below the dtype's epsilon.",
    fix="Keep the average in FP32.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/d8ahazard/sd_dreambooth_extension/issues/1415",
        "https://arxiv.org/abs/2010.06192",
    ),
    related=("MP061", "MP068"),
)
