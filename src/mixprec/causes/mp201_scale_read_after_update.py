"""MP201: get_scale() is read after update() and used for this iteration's values."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP201",
    name="scale-read-after-update",
    title="get_scale() is read after update() and used for this iteration's values.",
    symptom="The value is off by the growth or backoff factor in each iteration in which the scale changes.",
    evidence="In one iteration scale(x) is followed by update() and then by a division of x by get_scale().",
    fix="Keep loss.item() before scaling, or read the scale before update().",
    where=(Where.LINT,),
    raises="silent",
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",),
    related=("MP023", "MP022"),
)
