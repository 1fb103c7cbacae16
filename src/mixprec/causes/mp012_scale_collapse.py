"""MP012: the forward pass or the loss is not finite, so the scaler lowers its scale for ever."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP012",
    name="scale-collapse",
    title="The forward pass or the loss is not finite, so the scaler lowers its scale for ever.",
    symptom="Every step is skipped and the scale falls from 65536 to 0 in 166 steps without any warning.",
    evidence="The loss or an activation is not finite whatever the scale is, also at a scale of 1.",
    fix="Repair the forward pass; the scaler is not the cause.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/99640",
        "https://github.com/pytorch/pytorch/issues/40497",
        "https://github.com/ymcui/Chinese-LLaMA-Alpaca/issues/534",
    ),
    related=("MP010", "MP013", "MP030", "MP047"),
)
