"""MP044: two additive masks are summed and overflow together."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP044",
    name="masks-added",
    title="Two additive masks are summed and overflow together.",
    symptom="Places that both masks hide become minus infinity, and rows of them become NaN.",
    evidence="The additive mask that reaches the scores holds an infinity although each part was finite.",
    fix="Combine the masks as booleans and turn them into numbers once.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://github.com/huggingface/transformers/issues/9295",
    ),
    related=("MP042", "MP043"),
)
