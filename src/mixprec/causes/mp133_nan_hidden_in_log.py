"""MP133: the logged loss hides NaN."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP133",
    name="nan-hidden-in-log",
    title="The logged loss hides NaN.",
    symptom="The log shows 0 or the running mean while training is broken.",
    evidence="The raw loss is NaN and the logged loss is finite; Hugging Face's Trainer does so by default.",
    fix="Set logging_nan_inf_filter=False and look for the cause.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/huggingface/trl/issues/6702",
        "https://github.com/huggingface/optimum-graphcore/issues/68",
        "https://github.com/pytorch/pytorch/issues/96755",
        "https://huggingface.co/docs/transformers/main/en/main_classes/trainer",
    ),
    related=("MP134",),
)
