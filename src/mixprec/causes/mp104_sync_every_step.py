"""MP104: the host waits for the device in every step."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP104",
    name="sync-every-step",
    title="The host waits for the device in every step.",
    symptom="Time is lost in each step to item(), printing, NaN tests or get_scale().",
    evidence="Each step has at least one host synchronisation.",
    fix="Read values every so many steps, or one step late.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://github.com/huggingface/accelerate/issues/1714",
    ),
    related=("MP102",),
)
