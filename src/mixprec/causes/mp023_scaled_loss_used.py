"""MP023: the scaled loss is logged or compared as if it were the loss."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP023",
    name="scaled-loss-used",
    title="The scaled loss is logged or compared as if it were the loss.",
    symptom="The reported loss is 65536 times too large and jumps whenever the scale changes.",
    evidence="A variable that holds the output of scaler.scale() is logged, averaged or compared.",
    fix="Keep the loss in its own variable and log that one.",
    where=(Where.LINT,),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP201", "MP022"),
)
