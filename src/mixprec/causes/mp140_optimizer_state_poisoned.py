"""MP140: the optimizer's state holds NaN from an earlier step."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP140",
    name="optimizer-state-poisoned",
    title="The optimizer's state holds NaN from an earlier step.",
    symptom="The weights turn NaN although the gradients are clean.",
    evidence="exp_avg or exp_avg_sq is not finite while the gradients are.",
    fix="Restore the optimizer state from a checkpoint.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html",),
    related=("MP135", "MP211"),
)
