"""MP014: the loss scale keeps doubling because the gradients never overflow."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP014",
    name="scale-runaway",
    title="The loss scale keeps doubling because the gradients never overflow.",
    symptom="The scale climbs far above 2^24; later a burst of overflows follows, or none ever comes.",
    evidence="The scale is above 2^24 while the largest unscaled gradient is tiny or every gradient is zero.",
    fix="Look for a loss that is detached or constant, and set an upper bound for the scale.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/98828",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP015", "MP144", "MP200"),
)
