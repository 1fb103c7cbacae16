"""MP213: the learning-rate scheduler is stepped before the optimizer."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP213",
    name="scheduler-before-optimizer",
    title="The learning-rate scheduler is stepped before the optimizer.",
    symptom="The first value of the schedule is skipped; PyTorch warns once.",
    evidence="scheduler.step() comes before optimizer.step() or scaler.step() in the iteration.",
    fix="Step the scheduler after the optimizer.",
    where=(Where.LINT,),
    raises="warns",
    sources=("https://docs.pytorch.org/docs/stable/optim.html",),
    related=("MP020",),
)
