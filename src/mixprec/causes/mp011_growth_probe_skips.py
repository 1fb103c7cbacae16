"""MP011: a skipped step right after the scale grew is only the scaler testing its limit; this is normal."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP011",
    name="growth-probe-skips",
    title="A skipped step right after the scale grew is only the scaler testing its limit; this is normal.",
    symptom="About one step is skipped for every growth interval.",
    evidence="Each skip comes exactly one step after the scale doubled, and the next step is applied again.",
    fix="Nothing needs to be done.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",),
    related=("MP010", "MP029"),
)
