"""MP052: a mean, deviation or loss is taken over nothing."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP052",
    name="empty-selection",
    title="A mean, deviation or loss is taken over nothing.",
    symptom="NaN appears in some batches, in any dtype.",
    evidence=(
        "The input of the reduction is empty, or only one element goes into a deviation, or every label is ignored; "
        "the FP32 control is NaN too."
    ),
    fix="Guard the empty case and return a zero that keeps the graph.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/75181",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
    ),
    related=("MP043", "MP131"),
)
